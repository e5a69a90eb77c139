#include "decode/plan.h"

#include <algorithm>
#include <span>
#include <vector>

#include "decode/feature_decoder.h"
#include "decode/values.h"
#include "wire/entry.h"
#include "wire/plain.h"

namespace fastrec {
namespace {

// The longest length that takes one byte.
constexpr std::size_t kShortLengthMax = 0x7f;

// Sets the header of `entry` to `bytes`, if it has room for them.
bool set_header(const std::vector<std::uint8_t>& bytes, PlanEntry* entry) {
  if (bytes.size() > 2 * PlanEntry::kPartBytes) return false;
  entry->header_bytes = static_cast<std::uint8_t>(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) entry->header(i) = bytes[i];
  return true;
}

EntryForm form_of(const ColumnSpec& spec) {
  const bool is_number = spec.kind != FeatureKind::kBytes;
  if (spec.has_row_splits()) return EntryForm::kList;
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
    {"avx512", Isa::kAvx512, kernels::run_plan_avx512, kernels::run_both_avx512,
     kernels::run_by_key_avx512},
    {"avx2", Isa::kAvx2, kernels::run_plan_avx2, kernels::run_both_avx2,
     kernels::run_by_key_avx2},
#endif
    {"portable", Isa::kPortable, kernels::run_plan_portable, kernels::run_both_portable,
     kernels::run_by_key_portable},
};

}  // namespace

PlanEntry entry_of(const ColumnSpec& spec, std::uint32_t column) {
  PlanEntry entry;
  entry.column = column;
  entry.spec = &spec;
  const EntryForm form = form_of(spec);
  if (form == EntryForm::kUnknown) return entry;

  const bool is_constant = form == EntryForm::kFloat32 || form == EntryForm::kBlock;
  const std::size_t payload = is_constant ? spec.row_bytes() : 0;
  EntryHeader header = entry_header(as_bytes(spec.key), spec.kind, payload);
  if (form == EntryForm::kList) {
    // The payload is the list, so that its header has two bytes less.
    header.bytes.resize(header.bytes.size() - 2);
    header.lengths[3] = header.lengths[2];
    for (std::size_t i = 0; i < 3; ++i) header.bytes[header.lengths[i]] -= 2;
  }
  if (!set_header(header.bytes, &entry)) return entry;
  entry.form = form;
  entry.payload_bytes = payload;
  if (!is_constant) {
    for (const std::size_t at : header.lengths) entry.length(at) = 0xff;
    entry.payload_bytes_max =
        static_cast<std::uint8_t>(kShortLengthMax - header.bytes[1]);
  }
  return entry;
}

PlanEntry skipped_entry(Bytes key) {
  PlanEntry entry;
  std::vector<std::uint8_t> header(2 * PlanEntry::kPartBytes + 1);
  const std::size_t size = key.size() + 6;
  if (size > header.size()) return entry;
  open_entry(key, 0, header.data());
  header.resize(size);
  if (!set_header(header, &entry)) return entry;
  entry.form = EntryForm::kSkipped;
  for (const std::size_t at : {std::size_t{1}, size - 1}) entry.length(at) = 0xff;
  entry.payload_bytes_max = static_cast<std::uint8_t>(kShortLengthMax - header[1]);
  return entry;
}

std::span<const PlanKernel> plan_kernels() noexcept {
  return kernels_up_to(supported_isas().front(), kKernels);
}

const PlanKernel& plan_kernel() {
  static const PlanKernel& kernel = kernels_up_to(active_isa(), kKernels).front();
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
  return append_plain_row(spec, entry.column, payload, run.batch);
}

const std::uint8_t* kernels::store_list(const PlanEntry& entry, const std::uint8_t* p,
                                        const PlanRun& run) {
  Bytes content, key, feature, list;
  const std::uint8_t* const after = read_plain_field(p, run.end, kTagOne, &content);
  const bool is_stored = entry.form == EntryForm::kList && after != nullptr &&
                         find_plain_entry(content, &key, &feature) &&
                         as_text(key) == entry.spec->key &&
                         find_plain_list(feature, entry.spec->kind, &list) &&
                         append_plain_row(*entry.spec, entry.column, list, run.batch);
  return is_stored ? after : nullptr;
}

}  // namespace fastrec
