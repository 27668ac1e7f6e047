#include "graph/model.hpp"

#include "core/fail.hpp"
#include "core/json_fields.hpp"

namespace shunt::graph {
namespace {

constexpr std::int64_t kMost = 1 << 24;

std::int64_t by_device(JsonFields& fields, const std::string& key, const std::string& device,
                       const nlohmann::json& json) {
  if (!json.contains(key) || !json[key].is_object()) return fields.integer(key, 1, kMost);
  JsonFields devices = fields.object(key);
  return devices.integer(devices.has(device) ? device : "default", 1, kMost);
}

Attention read_attention(JsonFields fields, std::int64_t hidden, bool has_rope) {
  Attention attention;
  const std::string kind = fields.choice("kind", {"plain", "fused", "latent"});
  attention.heads = fields.integer("heads", 1, 1 << 16);
  if (!fields.has("head_dim") && hidden % attention.heads != 0)
    fields.refuse("heads",
                  fmt::format("{} don't divide a width of {}; expected head_dim beside them", attention.heads, hidden));
  attention.head_dim = fields.integer("head_dim", 1, 1 << 16, std::max<std::int64_t>(1, hidden / attention.heads));
  if (kind == "fused") attention.kind = Attention::Kind::fused;
  if (kind == "latent") {
    attention.kind = Attention::Kind::latent;
    attention.query_rank = fields.integer("query_rank", 1, kMost);
    attention.kv_rank = fields.integer("kv_rank", 1, kMost);
    attention.rope_dim = fields.integer("rope_dim", 2, 1 << 16);
    if (attention.rope_dim % 2 != 0) fields.refuse("rope_dim", "expected an even number");
  } else if (has_rope && attention.head_dim % 2 != 0) {
    fields.refuse("head_dim", "expected an even number, as positions turn pairs");
  }
  fields.end();
  return attention;
}

Gate read_gate(JsonFields fields) {
  Gate gate;
  if (fields.choice("scores", {"softmax", "sigmoid"}) == "sigmoid") gate.scores = Gate::Scores::sigmoid;
  gate.topk = fields.integer("topk", 1, 64);
  gate.groups = fields.integer("groups", 1, 1 << 16, 1);
  gate.groups_kept = fields.integer("groups_kept", 1, gate.groups, gate.groups);
  gate.has_bias = fields.boolean("bias", false);
  gate.normalise = fields.boolean("normalise", false);
  gate.scale = fields.real("scale", 1e-6, 1e6, 1.0);
  gate.capacity_factor = fields.real("capacity_factor", 0, 1e3, 0.0);
  gate.balance_loss = fields.real("balance_loss", 0, 1e3, 0.0);
  fields.end();
  return gate;
}

Moe read_moe(JsonFields fields, std::int64_t layers) {
  Moe moe;
  moe.every = fields.integer("every", 1, layers, 1);
  moe.first = fields.integer("first", 0, layers - 1, 0);
  if (fields.has("experts") == fields.has("experts_per_rank"))
    fields.refuse("experts", "expected either this or experts_per_rank");
  if (fields.has("experts"))
    moe.experts = fields.integer("experts", 1, 1 << 20);
  else
    moe.experts_per_rank = fields.integer("experts_per_rank", 1, 1 << 16);
  moe.hidden = fields.integer("hidden", 1, kMost);
  moe.shared = fields.integer("shared", 0, 1 << 10, 0);
  moe.gate = read_gate(fields.object("gate"));
  if (moe.experts > 0 && moe.experts % moe.gate.groups != 0)
    fields.refuse("gate.groups", fmt::format("{} experts are no {} equal groups", moe.experts, moe.gate.groups));
  fields.end();
  return moe;
}

Optimizer read_optimizer(JsonFields fields) {
  Optimizer optimizer;
  if (fields.choice("kind", {"sgd", "adam"}) == "sgd") optimizer.kind = Optimizer::Kind::sgd;
  optimizer.rate = fields.real("rate", 0, 1e6, optimizer.rate);
  fields.end();
  return optimizer;
}

}  // namespace

Model Model::from_json(const std::string& source, const std::string& text, const std::string& device) {
  const nlohmann::json json = parse_json(source, text);
  JsonFields fields(source, "", json);
  Model model;
  model.name = fields.text("name");
  if (model.name.empty() ||
      model.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") !=
          std::string::npos)
    fields.refuse("name", "expected letters, digits, '-', '_' and '.'");
  model.origin = fields.text("origin", "");
  model.layers = fields.integer("layers", 1, 1 << 12);
  model.hidden = fields.integer("hidden", 1, kMost);
  model.vocabulary = fields.integer("vocabulary", 1, kMost);
  model.sequence = fields.integer("sequence", 1, kMost);
  model.sequences_per_rank = by_device(fields, "sequences_per_rank", device, json);
  model.ffn_hidden = fields.integer("ffn_hidden", 1, kMost);
  model.dtype =
      fields.choice("dtype", {"f32", "bf16", "f16"}) == "f32" ? DType::f32 : parse_dtype(fields.text("dtype"));
  model.has_rope = fields.choice("positions", {"learned", "rope"}) == "rope";
  model.has_rms_norm = fields.choice("norm", {"layer", "rms"}) == "rms";
  model.is_gated = fields.choice("activation", {"gelu", "swiglu"}) == "swiglu";
  model.is_tied = fields.boolean("tied_embeddings", false);
  model.interleaves_micro_batches = fields.boolean("interleave_micro_batches", false);
  model.attention = read_attention(fields.object("attention"), model.hidden, model.has_rope);
  if (fields.has("moe")) model.moe = read_moe(fields.object("moe"), model.layers);
  if (fields.has("optimizer")) model.optimizer = read_optimizer(fields.object("optimizer"));
  fields.end();
  return model;
}

Model Model::load(const std::string& name_or_file, const std::string& device) {
  const auto [source, text] = load_description("model", model_presets(), name_or_file);
  return from_json(source, text, device);
}

}  // namespace shunt::graph
