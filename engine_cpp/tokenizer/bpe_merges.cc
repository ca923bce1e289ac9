#include "tokenizer/bpe_merges.h"

#include <algorithm>
#include <array>
#include <queue>

namespace pinfer {

namespace {

constexpr size_t kShortWord = 48;  // up to here a scan for the lowest rank beats a heap
constexpr uint32_t kNoRank = 0xFFFFFFFF;

}  // namespace

Result<BpeMerges> BpeMerges::open(const TokenizerFile& file, int32_t vocab_size) {
  BpeMerges merges;
  PINFER_ASSIGN_OR_RETURN(merges.slots_, file.array<BpeMerge>(TokenizerSection::MERGES));
  const size_t size = merges.slots_.size();
  if (size == 0 || (size & (size - 1)) != 0) {
    return file.bad_section(TokenizerSection::MERGES, "size is no power of two");
  }
  merges.mask_ = size - 1;
  merges.vocab_size_ = static_cast<uint32_t>(vocab_size);
  return merges;
}

void BpeMerges::apply(std::vector<int32_t>* symbols) const {
  if (symbols->size() < 2) return;
  if (symbols->size() <= kShortWord) {
    apply_to_short(symbols);
  } else {
    apply_to_long(symbols);
  }
}

void BpeMerges::apply_to_short(std::vector<int32_t>* symbols) const {
  std::array<uint32_t, kShortWord> ranks{};   // of the merge of i and i + 1
  std::array<int32_t, kShortWord> results{};  // what that merge gives
  std::vector<int32_t>& ids = *symbols;
  size_t size = ids.size();
  const auto look_up = [&](size_t i) {
    const BpeMerge* merge = i + 1 < size ? find(ids[i], ids[i + 1]) : nullptr;
    ranks[i] = merge == nullptr ? kNoRank : merge->rank;
    if (merge != nullptr) results[i] = static_cast<int32_t>(merge->merged);
  };
  for (size_t i = 0; i < size; ++i) look_up(i);
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = results[best];
    for (size_t i = best + 1; i + 1 < size; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --size;
    look_up(best);
    if (best > 0) look_up(best - 1);
    if (size == 1) break;
  }
  ids.resize(size);
}

void BpeMerges::apply_to_long(std::vector<int32_t>* symbols) const {
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous;
    int32_t next;
  };
  // An entry is rank and position in one number: the smallest rank first, then the leftmost.
  struct Entry {
    uint64_t key;
    int32_t left, right;  // the pair it was made for; if that has changed, the entry is void
    bool operator>(const Entry& other) const { return key > other.key; }
  };
  const auto size = static_cast<int32_t>(symbols->size());
  std::vector<Symbol> list(symbols->size());
  for (int32_t i = 0; i < size; ++i) {
    list[static_cast<size_t>(i)] = {(*symbols)[static_cast<size_t>(i)], i - 1,
                                    i + 1 < size ? i + 1 : -1};
  }
  std::vector<Entry> heap;
  heap.reserve(symbols->size() * 2);
  const auto consider = [&](int32_t position) -> bool {
    const Symbol& symbol = list[static_cast<size_t>(position)];
    if (symbol.next < 0) return false;
    const int32_t right = list[static_cast<size_t>(symbol.next)].id;
    const BpeMerge* merge = find(symbol.id, right);
    if (merge == nullptr) return false;
    const uint64_t key =
        (static_cast<uint64_t>(merge->rank) << 32) | static_cast<uint32_t>(position);
    heap.push_back({key, symbol.id, right});
    return true;
  };
  for (int32_t i = 0; i + 1 < size; ++i) consider(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const Entry entry = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto position = static_cast<int32_t>(entry.key & 0xFFFFFFFF);
    Symbol& symbol = list[static_cast<size_t>(position)];
    if (symbol.id != entry.left || symbol.next < 0) continue;
    Symbol& right = list[static_cast<size_t>(symbol.next)];
    if (right.id != entry.right) continue;
    symbol.id = static_cast<int32_t>(find(entry.left, entry.right)->merged);
    right.id = -1;
    symbol.next = right.next;
    if (right.next >= 0) list[static_cast<size_t>(right.next)].previous = position;
    if (consider(position)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (symbol.previous >= 0 && consider(symbol.previous)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  symbols->clear();
  for (int32_t i = 0; i >= 0; i = list[static_cast<size_t>(i)].next) {
    symbols->push_back(list[static_cast<size_t>(i)].id);
  }
}

}  // namespace pinfer
