#include "record/examination.h"

#include <algorithm>
#include <stdexcept>

namespace fastrec {
namespace {

// The size of a read of headers and small payloads.
constexpr std::uint64_t kBlockBytes = std::uint64_t{512} << 10;

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

FrameCursor Examination::make_cursor(ScanProgress* progress) const {
  return {&view_, kBlockBytes, [progress](std::uint64_t n_bytes) {
            progress->add(n_bytes);
            progress->check_cancelled();
          }};
}

Examination::Checked Examination::checked(FrameCursor* cursor, const Frame& frame) {
  // The same fault as from RecordReader with the default limit.
  if (frame.length > kMaxPayloadBytes) {
    return {frame,
            {.code = Errc::kRecordTooLarge,
             .offset = frame.offset,
             .found = frame.length,
             .expected = kMaxPayloadBytes}};
  }
  return {frame, cursor->check(frame)};
}

// Counts the last frame, which another one follows.
void Examination::Piece::count_last() {
  if (!last) return;
  if (last->fault) damaged.emplace_back(n_frames, *last);
  ++n_frames;
  last.reset();
}

void Examination::Piece::add(const Checked& checked) {
  count_last();
  last = checked;
  next = checked.frame.end();
}

void Examination::Piece::add(const Piece& following) {
  if (following.last) count_last();
  for (const auto& [number, checked] : following.damaged) {
    damaged.emplace_back(n_frames + number, checked);
  }
  n_frames += following.n_frames;
  if (following.last) last = following.last;
  next = following.next;
}

Examination::Examination(std::string path, std::uint64_t piece_bytes)
    : view_(std::move(path), Io::kPread) {
  if (piece_bytes == 0) throw std::invalid_argument("piece_bytes must be positive");
  for (std::uint64_t begin = 0; begin < view_.size(); begin += piece_bytes) {
    const std::uint64_t end = std::min(begin + piece_bytes, view_.size());
    pieces_.push_back({.begin = begin, .end = end, .first = begin, .next = begin});
  }
}

// Walks `piece` to its end, or until the chain is broken.
void Examination::walk(FrameCursor* cursor, Piece* piece) {
  cursor->report();
  while (piece->next < piece->end) {
    Frame frame;
    if (cursor->read(piece->next, &frame)) {
      piece->is_broken = true;
      break;
    }
    piece->add(checked(cursor, frame));
  }
  cursor->report();
}

void Examination::examine(std::size_t number, ScanProgress* progress) {
  Piece& piece = pieces_.at(number);
  FrameCursor cursor = make_cursor(progress);
  if (piece.begin != 0) piece.next = cursor.find(piece.begin, piece.end);
  piece.first = piece.next;
  walk(&cursor, &piece);
}

Findings Examination::finish(ScanProgress* progress) {
  Piece chain;  // the frames from byte 0, as far as they are known
  std::vector<Finding> findings;
  FrameCursor cursor = make_cursor(progress);
  FrameWalk frames(Recovery::kRepair, progress);
  frames.start(view_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (chain.next >= piece.end) continue;  // a frame covers the whole piece
    if (piece.first != chain.next) {
      piece = {.begin = piece.begin,
               .end = piece.end,
               .first = chain.next,
               .next = chain.next};
      walk(&cursor, &piece);
    }
    chain.add(piece);
    if (!piece.is_broken) continue;

    // The end of the frame before the break is not verified yet.
    frames.seek(chain.last ? chain.last->frame.offset : chain.next, chain.n_frames);
    chain.last.reset();
    std::size_t next = i + 1;  // the next piece that the chain may reach
    std::uint64_t end = view_.size();
    for (Frame frame; frames.next(&frame);) {
      while (next < pieces_.size() && pieces_[next].first < frame.offset) ++next;
      if (next < pieces_.size() && pieces_[next].first == frame.offset) {
        end = frame.offset;
        break;
      }
      chain.add(checked(&cursor, frame));
    }
    chain.next = end;
    // The walk looks ahead, so it may have found damage in later pieces.
    for (SkippedSpan& gap : frames.take_gaps()) {
      if (gap.begin >= end) continue;
      findings.push_back(
          {Finding::Kind::kGap, gap.begin, gap.end, 0, std::move(gap.error)});
    }
    for (FrameWalk::Repaired& repaired : frames.take_repaired()) {
      if (repaired.frame.offset >= end) continue;
      findings.push_back({Finding::Kind::kRepaired, repaired.frame.offset,
                          repaired.frame.end(), repaired.bit,
                          std::move(repaired.error)});
    }
  }
  chain.count_last();
  for (const auto& [number, checked] : chain.damaged) {
    findings.push_back(finding_of(checked.frame, checked.fault, number, view_.name(),
                                  view_.describe_change()));
  }
  std::ranges::sort(findings, {}, &Finding::begin);
  return {chain.n_frames - chain.damaged.size(), std::move(findings)};
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
