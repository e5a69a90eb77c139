#include "decode/plan.h"

#include <algorithm>
#include <span>
#include <vector>

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

std::span<const PlanKernel> kernels_of(Isa isa) noexcept {
  // A local variable, because a static constructor may call this.
  static const PlanKernel all[] = {
#if defined(__x86_64__)
      kernels::kPlanAvx2,
#endif
      kernels::kPlanPortable,
  };
  return kernels_up_to(isa, all);
}

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
  std::vector<std::uint8_t> header(field_size(entry_size(key.size(), 0)));
  open_entry(key, 0, header.data());
  if (!set_header(header, &entry)) return entry;
  entry.form = EntryForm::kSkipped;
  entry.length(1) = entry.length(header.size() - 1) = 0xff;
  entry.payload_bytes_max = static_cast<std::uint8_t>(kShortLengthMax - header[1]);
  return entry;
}

bool ColumnLookup::can_hold(const Schema& schema) {
  KeyTable keys;
  for (const ColumnSpec& spec : schema.columns) {
    const std::size_t n_keys = keys.size();
    if (spec.section != Section::kFeatures || spec.layout == Layout::kRecord ||
        spec.is_stacked_string() || keys.insert(spec.key) != n_keys) {
      return false;
    }
  }
  return !schema.columns.empty();
}

ColumnLookup::ColumnLookup(const Schema& schema) : marks(schema.columns.size()) {
  for (std::uint32_t column = 0; column < schema.columns.size(); ++column) {
    keys.insert(schema.columns[column].key);
    columns.push_back(entry_of(schema.columns[column], column));
  }
}

bool ColumnLookup::fill_missing(std::size_t row, const FeatureDecoder& decoder,
                                BatchBuilder* batch) const {
  if (n_marked == columns.size()) return true;
  for (std::uint32_t column = 0; column < columns.size(); ++column) {
    if (!has(column) && decoder.fill_missing(column, row, batch)) return false;
  }
  return true;
}

std::span<const PlanKernel> plan_kernels() noexcept {
  return kernels_of(supported_isas().front());
}

const PlanKernel& plan_kernel() {
  static const PlanKernel& kernel = kernels_of(active_isa()).front();
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
  Bytes key, feature, list;
  const std::uint8_t* const after = read_plain_entry(p, run.end, &key, &feature);
  const bool is_stored = entry.form == EntryForm::kList && after != nullptr &&
                         as_text(key) == entry.spec->key &&
                         find_plain_list(feature, entry.spec->kind, &list) &&
                         append_plain_row(*entry.spec, entry.column, list, run.batch);
  return is_stored ? after : nullptr;
}

}  // namespace fastrec
