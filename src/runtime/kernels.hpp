// What computes each kind of op; kernel_table.cpp has them all.
#pragma once

#include "runtime/op_call.hpp"

namespace shunt::runtime::kernels {

// pointwise.cpp
void add(const OpCall& call);
void mul(const OpCall& call);
void scale(const OpCall& call);
void expand(const OpCall& call);
void reduce(const OpCall& call);
void map(const OpCall& call);
void map_dx(const OpCall& call);
void swiglu(const OpCall& call);
void swiglu_dx(const OpCall& call);

// along.cpp: each row of a dimension on its own
void softmax(const OpCall& call);
void softmax_dx(const OpCall& call);
void norm(const OpCall& call);
void norm_dx(const OpCall& call);
void norm_dw(const OpCall& call);
void rope(const OpCall& call);
void cross_entropy(const OpCall& call);
void cross_entropy_dx(const OpCall& call);
void embedding(const OpCall& call);
void embedding_dw(const OpCall& call);

// products.cpp
void matmul(const OpCall& call);
void grouped_matmul(const OpCall& call);

// attention.cpp
void attention(const OpCall& call);
void attention_dx(const OpCall& call);

// routing.cpp
void topk(const OpCall& call);
void pick(const OpCall& call);
void pick_dx(const OpCall& call);
void limit(const OpCall& call);
void count(const OpCall& call);
void balance_loss(const OpCall& call);
void balance_loss_dx(const OpCall& call);

// updates.cpp
void sgd(const OpCall& call);
void adam(const OpCall& call);
void bias_update(const OpCall& call);

}  // namespace shunt::runtime::kernels
