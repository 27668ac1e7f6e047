// All of shunt, but for what runs on GPUs: those headers are named device_*.
#pragma once

#include "shunt/engine.hpp"
#include "shunt/environment.hpp"
#include "shunt/error.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/float_formats.hpp"
#include "shunt/machine.hpp"
#include "shunt/plan.hpp"
#include "shunt/routing.hpp"
#include "shunt/routing_trace.hpp"
#include "shunt/rows.hpp"
#include "shunt/tensor.hpp"
#include "shunt/ticket.hpp"
#include "shunt/topology.hpp"
#include "shunt/trace_recorder.hpp"
#include "shunt/traffic.hpp"
#include "shunt/world.hpp"
