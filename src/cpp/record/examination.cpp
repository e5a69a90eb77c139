#include "record/examination.h"

#include <algorithm>

#include "record/frame_cursor.h"

namespace fastrec {
namespace {

// The size of a read of headers and small payloads.
constexpr std::uint64_t kBlockBytes = std::uint64_t{512} << 10;

// Progress is reported, and a cancellation checked, after this many bytes.
constexpr std::uint64_t kReportBytes = std::uint64_t{1} << 20;

Finding finding_of(const Frame& frame, const Fault& fault, std::uint64_t record,
                   const std::string& name, const std::string& change) {
  std::string reason = describe(fault);
  if (!change.empty()) reason += "; " + change;
  Error error(fault.code, std::move(reason), name);
  error.record = record;
  error.offset = fault.offset;
  return {Finding::Kind::kRecord, frame.offset, frame.end(), 0, std::move(error)};
}

}  // namespace

// Reads a file and reports the progress.
class Examination::Reader {
 public:
  Reader(const FileView& view, ScanProgress* progress)
      : progress_(progress),
        cursor(&view, kBlockBytes, [this](std::uint64_t n) { report(n); }) {}
  Reader(const Reader&) = delete;

  Checked check(const Frame& frame) {
    // The same fault as from RecordReader.
    if (frame.length > kMaxPayloadBytes) {
      return {frame,
              {.code = Errc::kRecordTooLarge,
               .offset = frame.offset,
               .found = frame.length,
               .expected = kMaxPayloadBytes}};
    }
    return {frame, cursor.check(frame)};
  }

  void report(std::uint64_t n) {
    n_read_ += n;
    if (n == 0 || n_read_ >= kReportBytes) flush();
  }
  void flush() {
    progress_->n_bytes.fetch_add(n_read_, std::memory_order_relaxed);
    n_read_ = 0;
    if (progress_->cancelled.load(std::memory_order_relaxed)) throw ScanCancelled();
  }

 private:
  ScanProgress* progress_;
  std::uint64_t n_read_ = 0;  // and not reported yet

 public:
  FrameCursor cursor;
};

// The chain of frames from byte 0, as far as it is known.
class Examination::Chain {
 public:
  explicit Chain(const FileView& view) : view_(view) {}

  // The offset of the next frame, and the last frame, which is not counted yet.
  std::uint64_t at = 0;
  std::optional<Checked> last;
  std::uint64_t n_frames = 0;

  void add(const Checked& checked) {
    count_last();
    last = checked;
    at = checked.frame.end();
  }
  void add(Piece* piece) {
    if (piece->last) count_last();
    for (auto& [number, checked] : piece->damaged)
      add_damage(checked, n_frames + number);
    n_damaged_ += piece->damaged.size();
    n_frames += piece->n_frames;
    if (piece->last) last = piece->last;
    at = piece->next;
  }
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  Findings finish() {
    count_last();
    std::sort(findings_.begin(), findings_.end(),
              [](const Finding& a, const Finding& b) { return a.begin < b.begin; });
    return {n_frames - n_damaged_, std::move(findings_)};
  }

 private:
  void count_last() {
    if (!last) return;
    if (last->fault) {
      add_damage(*last, n_frames);
      ++n_damaged_;
    }
    ++n_frames;
    last.reset();
  }
  void add_damage(const Checked& checked, std::uint64_t record) {
    add(finding_of(checked.frame, checked.fault, record, view_.name(),
                   view_.describe_change()));
  }

  const FileView& view_;
  std::uint64_t n_damaged_ = 0;
  std::vector<Finding> findings_;
};

void Examination::Piece::add(const Checked& checked) {
  if (last) {
    if (last->fault) damaged.emplace_back(n_frames, *last);
    ++n_frames;
  }
  last = checked;
  next = checked.frame.end();
}

Examination::Examination(std::string path, std::uint64_t piece_bytes)
    : view_(std::move(path), Io::kPread) {
  for (std::uint64_t begin = 0; begin < view_.size(); begin += piece_bytes) {
    Piece piece;
    piece.begin = piece.first = piece.next = begin;
    piece.end = std::min(begin + piece_bytes, view_.size());
    pieces_.push_back(std::move(piece));
  }
}

// Walks `piece` to its end, or until the chain is broken.
void Examination::walk(Reader* reader, Piece* piece, ScanProgress* progress) const {
  if (progress->cancelled.load(std::memory_order_relaxed)) throw ScanCancelled();
  while (piece->next < piece->end) {
    Frame frame;
    if (reader->cursor.read(piece->next, &frame)) {
      piece->is_broken = true;
      break;
    }
    piece->add(reader->check(frame));
  }
  reader->flush();
}

void Examination::examine(std::size_t number, ScanProgress* progress) {
  Piece& piece = pieces_.at(number);
  Reader reader(view_, progress);
  if (piece.begin != 0) piece.next = reader.cursor.find(piece.begin, piece.end);
  piece.first = piece.next;
  walk(&reader, &piece, progress);
}

Findings Examination::finish(ScanProgress* progress) {
  Chain chain(view_);
  Reader reader(view_, progress);
  FrameWalk frames(Recovery::kRepair, &progress->cancelled);
  frames.start(view_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (chain.at >= piece.end) continue;  // a frame covers the whole piece
    if (piece.first != chain.at) {
      Piece again;
      again.begin = piece.begin;
      again.end = piece.end;
      again.first = again.next = chain.at;
      piece = std::move(again);
      walk(&reader, &piece, progress);
    }
    chain.add(&piece);
    if (!piece.is_broken) continue;

    // The end of the frame before the break is not verified yet.
    frames.seek(chain.last ? chain.last->frame.offset : chain.at, chain.n_frames);
    chain.last.reset();
    std::size_t next = i + 1;  // the next piece that the chain may reach
    std::uint64_t end = view_.size();
    for (Frame frame; frames.next(&frame);) {
      while (next < pieces_.size() && pieces_[next].first < frame.offset) ++next;
      if (next < pieces_.size() && pieces_[next].first == frame.offset) {
        end = frame.offset;
        break;
      }
      chain.add(reader.check(frame));
    }
    chain.at = end;
    // The walk looks ahead, so it may have found damage in later pieces.
    for (SkippedSpan& gap : frames.take_gaps()) {
      if (gap.begin >= end) continue;
      chain.add({Finding::Kind::kGap, gap.begin, gap.end, 0, std::move(gap.error)});
    }
    for (FrameWalk::Repaired& repaired : frames.take_repaired()) {
      if (repaired.frame.offset >= end) continue;
      chain.add({Finding::Kind::kRepaired, repaired.frame.offset, repaired.frame.end(),
                 repaired.bit, std::move(repaired.error)});
    }
  }
  return chain.finish();
}

Findings examine(FrameStream* stream, const std::string& name) {
  Findings found;
  const auto add_gap = [&](std::uint64_t begin, std::uint64_t end, const Error& error) {
    found.findings.push_back({Finding::Kind::kGap, begin, end, 0, error});
  };
  try {
    for (FrameStream::Verified verified; stream->verify(&verified);) {
      const Place& place = verified.place;
      if (verified.fault) {
        found.findings.push_back(
            finding_of(place.frame, verified.fault, place.record, name, {}));
      } else {
        ++found.n_records;
      }
    }
  } catch (const Error& error) {
    if (error.code != Errc::kRecordTooLarge) throw;
    add_gap(*error.offset, SkippedSpan::kUnknownEnd, error);
  }
  for (const SkippedSpan& gap : stream->take_gaps())
    add_gap(gap.begin, gap.end, gap.error);
  return found;
}

}  // namespace fastrec
