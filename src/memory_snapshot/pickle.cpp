// SPDX-License-Identifier: Apache-2.0
#include "memory_snapshot/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace epilogue::trace {

uint32_t PickleTexts::intern(std::string_view text) {
  const uint32_t id = table.intern(text);
  if (id < texts.size()) return id;
  texts.grow_to(table.size());
  for (const std::string_view fresh : table.take_new()) {
    texts[table.intern(fresh)] = fresh;
    // Beside the text: its slot in the table, which is at most half full.
    text_bytes += fresh.size() + 64;
  }
  return id;
}

int64_t PickleTexts::integer(PickleValue value, int64_t otherwise) const {
  switch (value.kind()) {
    case PickleValue::boolean:
    case PickleValue::integer: return value.number();
    case PickleValue::wide: return wide[value.id()];
    default: return otherwise;
  }
}

namespace {

constexpr size_t kPickleWindow = size_t{1} << 20;
constexpr uint32_t kNoSlot = std::numeric_limits<uint32_t>::max();

enum class OpKind : uint8_t { unknown, data, code, old, buffer };

struct Opcode {
  const char* name = nullptr;
  OpKind kind = OpKind::unknown;
};

// All opcodes of all protocols, so that messages can name those that are not data.
constexpr std::array<Opcode, 256> kOpcodes = [] {
  std::array<Opcode, 256> table{};
  const auto set = [&](int code, const char* name, OpKind kind = OpKind::data) {
    table[static_cast<size_t>(code)] = {name, kind};
  };
  set('(', "MARK");
  set('.', "STOP");
  set('0', "POP");
  set('1', "POP_MARK");
  set('2', "DUP");
  set('F', "FLOAT", OpKind::old);
  set('I', "INT", OpKind::old);
  set('J', "BININT");
  set('K', "BININT1");
  set('L', "LONG", OpKind::old);
  set('M', "BININT2");
  set('N', "NONE");
  set('P', "PERSID", OpKind::code);
  set('Q', "BINPERSID", OpKind::code);
  set('R', "REDUCE", OpKind::code);
  set('S', "STRING", OpKind::old);
  set('T', "BINSTRING");
  set('U', "SHORT_BINSTRING");
  set('V', "UNICODE", OpKind::old);
  set('X', "BINUNICODE");
  set('a', "APPEND");
  set('b', "BUILD", OpKind::code);
  set('c', "GLOBAL", OpKind::code);
  set('d', "DICT");
  set('}', "EMPTY_DICT");
  set('e', "APPENDS");
  set('g', "GET", OpKind::old);
  set('h', "BINGET");
  set('i', "INST", OpKind::code);
  set('j', "LONG_BINGET");
  set('l', "LIST");
  set(']', "EMPTY_LIST");
  set('o', "OBJ", OpKind::code);
  set('p', "PUT", OpKind::old);
  set('q', "BINPUT");
  set('r', "LONG_BINPUT");
  set('s', "SETITEM");
  set('t', "TUPLE");
  set(')', "EMPTY_TUPLE");
  set('u', "SETITEMS");
  set('G', "BINFLOAT");
  set('B', "BINBYTES");
  set('C', "SHORT_BINBYTES");
  set(0x80, "PROTO");
  set(0x81, "NEWOBJ", OpKind::code);
  set(0x82, "EXT1", OpKind::code);
  set(0x83, "EXT2", OpKind::code);
  set(0x84, "EXT4", OpKind::code);
  set(0x85, "TUPLE1");
  set(0x86, "TUPLE2");
  set(0x87, "TUPLE3");
  set(0x88, "NEWTRUE");
  set(0x89, "NEWFALSE");
  set(0x8a, "LONG1");
  set(0x8b, "LONG4");
  set(0x8c, "SHORT_BINUNICODE");
  set(0x8d, "BINUNICODE8");
  set(0x8e, "BINBYTES8");
  set(0x8f, "EMPTY_SET");
  set(0x90, "ADDITEMS");
  set(0x91, "FROZENSET");
  set(0x92, "NEWOBJ_EX", OpKind::code);
  set(0x93, "STACK_GLOBAL", OpKind::code);
  set(0x94, "MEMOIZE");
  set(0x95, "FRAME");
  set(0x96, "BYTEARRAY8");
  set(0x97, "NEXT_BUFFER", OpKind::buffer);
  set(0x98, "READONLY_BUFFER", OpKind::buffer);
  return table;
}();

// Ends the reading from any depth of calls.
struct PickleEnd {
  Failure failure;
};

class PickleMachine {
 public:
  PickleMachine(ByteSource& source, std::string_view name, PickleTexts& texts,
                PickleBuilder& builder, const std::function<void(int64_t, int64_t)>& progress)
      : source_(source), name_(name), texts_(texts), builder_(builder), progress_(progress) {
    window_.resize(kPickleWindow);
  }

  Result<PickleValue> run() {
    try {
      return interpret();
    } catch (PickleEnd& end) {
      return std::move(end.failure);
    } catch (const PickleFault& fault) {
      return Failure{FailureCode::not_a_trace,
                     fmt::format("{}: {}, at byte {} ({})", name_, fault.what, op_at_, op_name())};
    }
  }

 private:
  using V = PickleValue;

  // --- Bytes ------------------------------------------------------------------------------------

  // Keeps what is left of the window and reads behind it.
  void refill() {
    std::memmove(window_.data(), window_.data() + at_, end_ - at_);
    begin_offset_ += at_;
    end_ -= at_;
    at_ = 0;
    if (!is_at_end_) {
      const Result<size_t> got = source_.read(std::span(window_).subspan(end_));
      if (!got) throw PickleEnd{got.failure()};
      is_at_end_ = got.value() < window_.size() - end_;
      end_ += got.value();
    }
    if (progress_) progress_(source_.file_bytes_read(), source_.file_bytes());
    check_memory();
  }

  // n bytes, at most a window of them.
  const char* take(size_t n) {
    if (end_ - at_ < n) {
      refill();
      if (end_ - at_ < n) fail_short();
    }
    const char* bytes = window_.data() + at_;
    at_ += n;
    return bytes;
  }

  [[noreturn]] void fail_short() const {
    if (begin_offset_ + end_ == 0) fail("expected a pickle, got an empty file");
    fail(fmt::format("ends early, at byte {}, within {} at byte {}: the file was cut",
                     begin_offset_ + end_, op_name(), op_at_));
  }

  uint64_t unsigned_of(size_t bytes) {
    const auto* at = reinterpret_cast<const unsigned char*>(take(bytes));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{at[i]} << (8 * i);
    return value;
  }

  // --- Failures ---------------------------------------------------------------------------------

  std::string op_name() const {
    const Opcode& op = kOpcodes[op_];
    return op.name != nullptr ? op.name : fmt::format("0x{:02x}", op_);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw PickleEnd{{FailureCode::not_a_trace, fmt::format("{}: {}", name_, what)}};
  }
  [[noreturn]] void fail_here(const std::string& what) const {
    fail(fmt::format("{}, at byte {} ({})", what, op_at_, op_name()));
  }
  [[noreturn]] void refuse() const {
    const Opcode& op = kOpcodes[op_];
    switch (op.kind) {
      case OpKind::code:
        fail(
            fmt::format("opcode {} at byte {} would import or call code: expected a pickle of data "
                        "alone; nothing of it was run",
                        op_name(), op_at_));
      case OpKind::old:
        fail(fmt::format("opcode {} at byte {} is of protocol 0: expected protocols 2 to 5",
                         op_name(), op_at_));
      case OpKind::buffer:
        fail(
            fmt::format("opcode {} at byte {} wants a buffer from outside the file: expected a "
                        "pickle in one piece",
                        op_name(), op_at_));
      default:
        fail(fmt::format("byte {} is {}, which is no opcode of a pickle", op_at_, op_name()));
    }
  }

  void check_memory() const {
    const uint64_t held = stack_.capacity() * (sizeof(V) + sizeof(uint32_t)) + memo_.bytes() +
                          texts_.text_bytes + texts_.wide.bytes() + texts_.reals.bytes() +
                          builder_.held_bytes();
    const uint64_t limit = kPickleBaseBytes + kPickleBytesPerByte * (begin_offset_ + end_);
    if (held > limit)
      fail(
          fmt::format("its first {} bytes hold values that take {} bytes of memory, {} are "
                      "allowed: no snapshot is like that",
                      begin_offset_ + end_, held, limit));
  }

  // --- Stack and memo ---------------------------------------------------------------------------

  void push(V value, uint32_t slot = kNoSlot) {
    stack_.push_back(value);
    slots_.push_back(slot);
  }
  size_t fence() const { return marks_.empty() ? 0 : marks_.back(); }
  void need(size_t n) const {
    if (stack_.size() < fence() + n)
      fail_here(fmt::format("expected {} values on the stack, got {}", n, stack_.size() - fence()));
  }
  V pop() {
    need(1);
    const V value = stack_.back();
    drop_to(stack_.size() - 1);
    return value;
  }
  void drop_to(size_t size) {
    stack_.resize(size);
    slots_.resize(size);
  }
  // Where the values since the last mark begin; the mark goes.
  size_t pop_mark() {
    if (marks_.empty()) fail_here("expected a mark on the stack, got none");
    const size_t begin = marks_.back();
    marks_.pop_back();
    return begin;
  }

  // The memo's own value of a container changes with it.
  void replace_top(V value) {
    const uint32_t slot = slots_.back();
    stack_.back() = value;
    if (slot != kNoSlot) memo_[slot] = value;
  }
  void put(uint64_t index) {
    need(1);
    if (index > 2 * uint64_t{puts_} + 1024 || index >= kNoSlot)
      fail_here(fmt::format("memo index {} after {} entries", index, puts_));
    ++puts_;
    memo_.grow_to(index + 1);
    memo_[index] = stack_.back();
    // The latest entry is the one that follows the container.
    slots_.back() = static_cast<uint32_t>(index);
  }

  void get(uint64_t index) {
    if (index >= memo_.size()) fail_here(fmt::format("memo index {} of {}", index, memo_.size()));
    V& value = memo_[index];
    if (value.kind() == V::empty_dict || value.kind() == V::empty_list) {
      push(value, static_cast<uint32_t>(index));
      value = V(value.kind(), 1);
    } else {
      push(value, static_cast<uint32_t>(index));
    }
  }

  // --- Values -----------------------------------------------------------------------------------

  void push_integer(int64_t value) {
    constexpr int64_t kMost = (int64_t{1} << 59) - 1;
    if (value >= -kMost && value <= kMost) {
      push(V(V::integer, value));
      return;
    }
    push(V(V::wide, static_cast<int64_t>(texts_.wide.size())));
    texts_.wide.push_back(value);
  }

  void push_long(uint64_t bytes) {
    // 9 bytes, the last 0: an unsigned number of 64 bits, as addresses and streams are.
    if (bytes > 9) {
      skip(bytes);
      push(V(V::huge, 0));
      return;
    }
    const auto* at = reinterpret_cast<const unsigned char*>(take(bytes));
    if (bytes == 9 && at[8] != 0) {
      push(V(V::huge, 0));
      return;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < std::min<uint64_t>(bytes, 8); ++i) value |= uint64_t{at[i]} << (8 * i);
    if (bytes > 0 && bytes < 8 && (at[bytes - 1] & 0x80) != 0) value |= ~uint64_t{0} << (8 * bytes);
    push_integer(static_cast<int64_t>(value));
  }

  void skip(uint64_t n) {
    while (n > 0) {
      const size_t part = std::min<uint64_t>(n, kPickleWindow);
      take(part);
      n -= part;
    }
  }

  void push_text(uint64_t size) {
    if (size > kMaxPickleText)
      fail_here(fmt::format("a text of {} bytes, at most {} are read", size, kMaxPickleText));
    if (size <= kPickleWindow) {
      push(V(V::text, texts_.intern({take(size), size})));
      return;
    }
    std::string text;  // grows with what is there, whatever was announced
    for (uint64_t left = size; left > 0;) {
      const size_t part = std::min<uint64_t>(left, kPickleWindow);
      text.append(take(part), part);
      left -= part;
    }
    push(V(V::text, texts_.intern(text)));
  }

  void push_tuple(size_t begin) {
    const V made = builder_.make_tuple(std::span(stack_).subspan(begin));
    drop_to(begin);
    push(made);
  }

  void set_items(size_t begin) {
    if ((stack_.size() - begin) % 2 != 0) fail_here("a key without a value");
    if (begin == 0 || begin <= fence()) fail_here("expected a dict below the items, got nothing");
    const std::vector<V>& all = stack_;
    const V dict = all[begin - 1];
    const auto items = std::span(all).subspan(begin);
    if (items.empty()) return;
    const V made = with_container(begin, dict, [&] { return builder_.set_items(dict, items); });
    replace_top(made);
  }

  void append(size_t begin) {
    if (begin == 0 || begin <= fence())
      fail_here("expected a list below the elements, got nothing");
    const std::vector<V>& all = stack_;
    const V list = all[begin - 1];
    const auto elements = std::span(all).subspan(begin);
    if (elements.empty()) return;
    const V made = with_container(begin, list, [&] { return builder_.append(list, elements); });
    replace_top(made);
  }

  // A container that was read from the memo while it was empty, and so is elsewhere too, must stay
  // empty: only one that holds itself grows after that.
  template <class Make>
  V with_container(size_t begin, V container, const Make& make) {
    const uint32_t slot = slots_[begin - 1];
    const bool is_empty = container.kind() == V::empty_dict || container.kind() == V::empty_list;
    if (is_empty && ((slot != kNoSlot && memo_[slot].number() != 0) || container.number() != 0))
      fail_here("a container holds itself, or grows after it was put elsewhere");
    const V made = make();
    drop_to(begin);
    return made;
  }

  void dup() {
    need(1);
    const V top = stack_.back();
    if (top.kind() == V::empty_dict || top.kind() == V::empty_list)
      fail_here("an empty container in two places");
    push(top, slots_.back());
  }

  // --- The loop ---------------------------------------------------------------------------------

  PickleValue interpret() {
    op_ = 0x80;
    if (*take(1) != '\x80')
      fail("expected a pickle of protocols 2 to 5, whose first byte is 0x80, got " + first_byte());
    const uint64_t protocol = unsigned_of(1);
    if (protocol < 2 || protocol > 5)
      fail(fmt::format("a pickle of protocol {}: expected protocols 2 to 5", protocol));
    while (true) {
      op_at_ = begin_offset_ + at_;
      op_ = static_cast<unsigned char>(*take(1));
      if (op_ == '.') break;
      step();
    }
    if (!marks_.empty() || stack_.size() != 1)
      fail_here(fmt::format("expected one value at the end, got {}", stack_.size()));
    return stack_.back();
  }

  std::string first_byte() const {
    const auto byte = static_cast<unsigned char>(window_[0]);
    return byte == '{' || byte == '['
               ? fmt::format("'{}': JSON? `epilogue explain` reads traces", window_[0])
               : fmt::format("0x{:02x}", byte);
  }

  void step() {
    switch (op_) {
      case '(':
        if (marks_.size() == kMaxPickleMarks)
          fail_here(fmt::format("more than {} containers within each other", kMaxPickleMarks));
        marks_.push_back(stack_.size());
        return;
      case '0': pop(); return;
      case '1': drop_to(pop_mark()); return;
      case '2': dup(); return;
      case 'J': push_integer(static_cast<int32_t>(unsigned_of(4))); return;
      case 'K': push_integer(static_cast<int64_t>(unsigned_of(1))); return;
      case 'M': push_integer(static_cast<int64_t>(unsigned_of(2))); return;
      case 0x8a: push_long(unsigned_of(1)); return;
      case 0x8b: {
        const uint64_t size = unsigned_of(4);
        if (size > std::numeric_limits<int32_t>::max()) fail_here("a negative size");
        push_long(size);
        return;
      }
      case 'N': push(V(V::none, 0)); return;
      case 0x88: push(V(V::boolean, 1)); return;
      case 0x89: push(V(V::boolean, 0)); return;
      case 'G': {
        const auto* at = reinterpret_cast<const unsigned char*>(take(8));
        uint64_t bits = 0;
        for (size_t i = 0; i < 8; ++i) bits = bits << 8 | at[i];
        push(V(V::real, static_cast<int64_t>(texts_.reals.size())));
        texts_.reals.push_back(std::bit_cast<double>(bits));
        return;
      }
      case 'U':
      case 'C':
      case 0x8c: push_text(unsigned_of(1)); return;
      case 'T':
      case 'B':
      case 'X': push_text(unsigned_of(4)); return;
      case 0x8d:
      case 0x8e:
      case 0x96: push_text(unsigned_of(8)); return;
      case '}': push(V(V::empty_dict, 0)); return;
      case ']':
      case 0x8f: push(V(V::empty_list, 0)); return;
      case ')': push_tuple(stack_.size()); return;
      case 0x85:
        need(1);
        push_tuple(stack_.size() - 1);
        return;
      case 0x86:
        need(2);
        push_tuple(stack_.size() - 2);
        return;
      case 0x87:
        need(3);
        push_tuple(stack_.size() - 3);
        return;
      case 't':
      case 0x91: push_tuple(pop_mark()); return;
      case 'd': {
        const size_t begin = pop_mark();
        stack_.insert(stack_.begin() + static_cast<ptrdiff_t>(begin), V(V::empty_dict, 0));
        slots_.insert(slots_.begin() + static_cast<ptrdiff_t>(begin), kNoSlot);
        set_items(begin + 1);
        return;
      }
      case 'l': {
        const size_t begin = pop_mark();
        stack_.insert(stack_.begin() + static_cast<ptrdiff_t>(begin), V(V::empty_list, 0));
        slots_.insert(slots_.begin() + static_cast<ptrdiff_t>(begin), kNoSlot);
        append(begin + 1);
        return;
      }
      case 's':
        need(3);
        set_items(stack_.size() - 2);
        return;
      case 'u': set_items(pop_mark()); return;
      case 'a':
        need(2);
        append(stack_.size() - 1);
        return;
      case 'e':
      case 0x90: append(pop_mark()); return;
      case 0x94: put(puts_); return;
      case 'q': put(unsigned_of(1)); return;
      case 'r': put(unsigned_of(4)); return;
      case 'h': get(unsigned_of(1)); return;
      case 'j': get(unsigned_of(4)); return;
      case 0x95:
        unsigned_of(8);
        return;  // sizes of frames are for who reads a stream piece by piece
      default: refuse();
    }
  }

  ByteSource& source_;
  std::string name_;
  PickleTexts& texts_;
  PickleBuilder& builder_;
  const std::function<void(int64_t, int64_t)>& progress_;

  std::vector<char> window_;
  size_t at_ = 0;
  size_t end_ = 0;
  uint64_t begin_offset_ = 0;  // of the window, in the stream
  bool is_at_end_ = false;

  std::vector<V> stack_;
  std::vector<uint32_t> slots_;  // beside it: where the memo has the value
  std::vector<size_t> marks_;
  Chunked<V> memo_;
  uint32_t puts_ = 0;
  uint64_t op_at_ = 0;
  unsigned char op_ = 0;
};

}  // namespace

Result<PickleValue> read_pickle(ByteSource& source, std::string_view name, PickleTexts& texts,
                                PickleBuilder& builder,
                                const std::function<void(int64_t, int64_t)>& progress) {
  return PickleMachine(source, name, texts, builder, progress).run();
}

}  // namespace epilogue::trace
