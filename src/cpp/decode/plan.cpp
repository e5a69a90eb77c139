#include "decode/plan.h"

#include <algorithm>
#include <span>

#include "decode/values.h"
#include "wire/packed.h"
#include "wire/plain.h"

namespace fastrec {
namespace {

// Lengths of one byte are below this.
constexpr std::size_t kLongVarint = 0x80;

// Appends bytes to the header of an entry.
class HeaderWriter {
 public:
  explicit HeaderWriter(PlanEntry* entry) : entry_(entry) {}

  // False once there is no room.
  bool is_complete() const { return is_complete_; }

  void byte(std::uint8_t value, std::uint8_t added = 0) {
    const std::size_t at = entry_->header_bytes;
    is_complete_ = is_complete_ && at < 2 * PlanEntry::kPartBytes;
    if (!is_complete_) return;
    PlanEntry::Part& part = at < PlanEntry::kPartBytes ? entry_->first : entry_->second;
    part.header[at % PlanEntry::kPartBytes] = value;
    part.lengths[at % PlanEntry::kPartBytes] = added;
    ++entry_->header_bytes;
  }

  // A length to which the size of the payload is added.
  void open_length(std::size_t value) {
    is_complete_ = is_complete_ && value < kLongVarint;
    byte(static_cast<std::uint8_t>(value), 0xff);
  }

  void length(std::size_t value) {
    for (; value >= kLongVarint; value >>= 7) {
      byte(static_cast<std::uint8_t>(value | kLongVarint));
    }
    byte(static_cast<std::uint8_t>(value));
  }

  void key(Bytes key) {
    byte(kTagOne);
    length(key.size());
    for (const std::uint8_t c : key) byte(c);
  }

 private:
  PlanEntry* entry_;
  bool is_complete_ = true;
};

std::size_t length_bytes(std::size_t length) {
  std::size_t n = 1;
  for (; length >= kLongVarint; length >>= 7) ++n;
  return n;
}

EntryForm form_of(const ColumnSpec& spec) {
  const bool is_number = spec.kind != FeatureKind::kBytes;
  if (spec.has_row_splits()) {
    const bool is_simple = is_number && spec.n_values == 1 && !spec.length;
    return is_simple ? EntryForm::kList : EntryForm::kUnknown;
  }
  if (spec.layout == Layout::kRaw) {
    const bool is_copied = spec.swap_bytes <= 1 && spec.dtype != DType::kBool;
    return is_copied && spec.row_bytes() > 0 ? EntryForm::kBlock : EntryForm::kUnknown;
  }
  if (spec.layout != Layout::kDense) return EntryForm::kUnknown;
  if (spec.dtype == DType::kFloat32) {
    return spec.n_values == 1  ? EntryForm::kFloat32
           : spec.n_values > 1 ? EntryForm::kBlock
                               : EntryForm::kUnknown;
  }
  if (spec.n_values != 1) return EntryForm::kUnknown;
  if (!is_number) return EntryForm::kString;
  return spec.dtype == DType::kInt64 ? EntryForm::kInt64 : EntryForm::kConverted;
}

// Best first.
constexpr PlanKernel kKernels[] = {
#if defined(__x86_64__)
    {"avx512", Isa::kAvx512, kernels::run_plan_avx512},
    {"avx2", Isa::kAvx2, kernels::run_plan_avx2},
#endif
    {"portable", Isa::kPortable, kernels::run_plan_portable},
};

std::span<const PlanKernel> kernels_up_to(Isa isa) noexcept {
  return {std::ranges::find_if(kKernels, [isa](auto& k) { return k.isa <= isa; }),
          std::end(kKernels)};
}

}  // namespace

PlanEntry entry_of(const ColumnSpec& spec, std::uint32_t column) {
  PlanEntry entry;
  entry.column = column;
  entry.spec = &spec;
  const EntryForm form = form_of(spec);
  if (form == EntryForm::kUnknown) return entry;

  const Bytes key = as_bytes(spec.key);
  const auto kind =
      static_cast<std::uint8_t>(static_cast<unsigned>(spec.kind) << 3 | 2);
  HeaderWriter header(&entry);
  header.byte(kTagOne);
  if (form == EntryForm::kFloat32 || form == EntryForm::kBlock) {
    const std::size_t run = spec.row_bytes();
    const std::size_t list = 1 + length_bytes(run) + run;
    const std::size_t feature = 1 + length_bytes(list) + list;
    header.length(1 + length_bytes(key.size()) + key.size() + 1 +
                  length_bytes(feature) + feature);
    header.key(key);
    header.byte(kTagTwo);
    header.length(feature);
    header.byte(kind);
    header.length(list);
    header.byte(kTagOne);
    header.length(run);
    entry.payload_bytes = run;
  } else {
    const std::size_t empty = key.size() + 8;
    header.open_length(empty);
    header.key(key);
    header.byte(kTagTwo);
    header.open_length(4);
    header.byte(kind);
    header.open_length(2);
    header.byte(kTagOne);
    header.open_length(0);
    entry.payload_bytes_max =
        static_cast<std::uint8_t>(kLongVarint - 1 - std::min(empty, kLongVarint - 1));
  }
  if (header.is_complete()) {
    entry.form = form;
  } else {
    entry.header_bytes = 0;
  }
  return entry;
}

PlanEntry skipped_entry(Bytes key) {
  PlanEntry entry;
  const std::size_t empty = key.size() + 4;
  HeaderWriter header(&entry);
  header.byte(kTagOne);
  header.open_length(empty);
  header.key(key);
  header.byte(kTagTwo);
  header.open_length(0);
  if (header.is_complete()) {
    entry.form = EntryForm::kSkipped;
    entry.payload_bytes_max = static_cast<std::uint8_t>(kLongVarint - 1 - empty);
  } else {
    entry.header_bytes = 0;
  }
  return entry;
}

std::span<const PlanKernel> plan_kernels() noexcept {
  return kernels_up_to(supported_isas().front());
}

const PlanKernel& plan_kernel() {
  static const PlanKernel& kernel = kernels_up_to(active_isa()).front();
  return kernel;
}

bool kernels::store_payload(const PlanEntry& entry, Bytes payload, const PlanRun& run) {
  const ColumnSpec& spec = *entry.spec;
  if (entry.form == EntryForm::kString) {
    run.batch->append_string(
        entry.column, payload,
        payload.data() + payload.size() + BytesWithSlack::kSlackBytes);
    return true;
  }
  if (entry.form == EntryForm::kConverted) {
    return decode_plain_numbers(payload, spec.kind, 1, spec.dtype,
                                run.batch->row(entry.column, run.row));
  }
  const std::size_t n = spec.kind == FeatureKind::kFloat
                            ? payload.size() / sizeof(float)
                            : count_varints(payload);
  std::uint8_t* const target = run.batch->extend(entry.column, n * spec.item_bytes);
  if (!decode_plain_numbers(payload, spec.kind, n, spec.dtype, target)) {
    run.batch->retract(entry.column, n);
    return false;
  }
  run.batch->end_ragged_row(entry.column, n);
  return true;
}

}  // namespace fastrec
