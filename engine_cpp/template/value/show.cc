#include "template/value/show.h"

#include "template/builtins/registry.h"
#include "template/text/number_text.h"
#include "template/text/python_text.h"
#include "template/tree/statements.h"
#include "template/value/dict.h"
#include "template/value/runtime_objects.h"

namespace pinfer::jinja {

namespace {

// Namespaces may contain themselves, so the depth is counted here.
class ReprWriter {
 public:
  ReprWriter(Heap& heap, std::string& out) : heap_(heap), out_(out) {}

  void write(const Value& value) {
    DepthGuard guard(depth_, heap_.limits().max_value_depth);
    heap_.spend(1);
    heap_.check_text_size(out_.size());
    switch (value.type()) {
      case Type::STRING:
        write_string(value);
        break;
      case Type::LIST:
        write_items(value.items(), "[", "]");
        break;
      case Type::TUPLE:
        write_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
        break;
      case Type::DICT:
        write_dict(value.dict());
        break;
      case Type::DICT_VIEW:
        out_ += type_name(value) + "(";
        write_items(collect(heap_, value), "[", "])");
        break;
      case Type::NAMESPACE:
        write_namespace(value.as<NamespaceObject>());
        break;
      default:
        write_leaf(value);
    }
  }

 private:
  void write_string(const Value& value) {
    heap_.spend_bytes(value.text().size());
    if (value.string().is_markup) out_ += "Markup(";
    jinja::append_repr(out_, value.text());
    if (value.string().is_markup) out_ += ")";
  }

  void write_items(const std::vector<Value>& items, const char* open, const char* close) {
    out_ += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(items[i]);
    }
    out_ += close;
  }

  void write_pair(const std::string& key, const Value& value, bool first) {
    out_ += (first ? "" : ", ") + key + ": ";
    write(value);
  }

  void write_dict(const DictObject& dict) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      write(key);
      out_ += ": ";
      write(value);
    }
    out_ += "}";
  }

  void write_namespace(const NamespaceObject& object) {
    out_ += "<Namespace {";
    bool first = true;
    for (const auto& [name, value] : object.attributes) {
      std::string key;
      jinja::append_repr(key, name);
      write_pair(key, value, first);
      first = false;
    }
    out_ += "}>";
  }

  void write_leaf(const Value& value) {
    switch (value.type()) {
      case Type::NONE:
        out_ += "None";
        break;
      case Type::BOOL:
        out_ += value.as_bool() ? "True" : "False";
        break;
      case Type::INT:
        out_ += std::to_string(value.as_int());
        break;
      case Type::FLOAT:
        out_ += float_repr(value.as_double());
        break;
      case Type::UNDEFINED:
      case Type::MISSING:
        out_ += "Undefined";
        break;
      case Type::RANGE: {
        const auto& range = value.as<RangeObject>();
        out_ += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
        out_ += range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")";
        break;
      }
      case Type::LOOP: {
        auto& loop = value.as<LoopObject>();
        out_ += "<LoopContext " + std::to_string(loop.index0() + 1) + "/" +
                std::to_string(loop.length()) + ">";
        break;
      }
      case Type::MACRO: {
        const std::optional<std::string>& name = value.as<MacroObject>().node->name;
        out_ += "<Macro ";
        if (name.has_value()) {
          jinja::append_repr(out_, *name);
        } else {
          out_ += "anonymous";
        }
        out_ += ">";
        break;
      }
      default:  // Python prints an address here, so no template can rely on it
        out_ += "<" + type_name(value) + " object>";
    }
  }

  Heap& heap_;
  std::string& out_;
  int depth_ = 0;
};

}  // namespace

void append_repr(Heap& heap, std::string& out, const Value& value) {
  ReprWriter(heap, out).write(value);
}

void append_str(Heap& heap, std::string& out, const Value& value) {
  if (value.is_string()) {
    heap.check_text_size(out.size() + value.text().size());
    heap.spend_bytes(value.text().size());
    out += value.text();
  } else if (!value.is_undefined()) {
    append_repr(heap, out, value);
  }
}

std::string to_str(Heap& heap, const Value& value) {
  std::string out;
  append_str(heap, out, value);
  return out;
}

}  // namespace pinfer::jinja
