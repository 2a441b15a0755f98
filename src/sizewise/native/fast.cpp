// What every call does many times over, in C++: compare what a program takes for granted, and make a tape's calls.
//
// Nothing of torch is included: that would take seconds to compile. `Watch` reads the first bytes of a tensor's C++
// object as they are; `layout.py` finds out where they lie, and that a change of each kind shows in them. `Tape` calls
// kernels, and operators of torch's C interface (aoti_torch_*), by address.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

// Up to 3.12 each change gives a dict a new number. In 3.13 attributes of an object are set without; there, and later,
// each place is looked up.
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
uint64_t version_of(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
constexpr bool HAS_VERSIONS = true;
#else
uint64_t version_of(PyObject*) { return 0; }
constexpr bool HAS_VERSIONS = false;
#endif

struct Object {
    PyObject* value;
    PyTypeObject* type;
    PyObject* attributes;
};

struct Place {
    PyObject* key;
    PyObject* value;  // nullptr: nothing is to be there
};

struct Group {
    PyObject* container;
    uint64_t version;
    Py_ssize_t length;  // -1: any
    bool is_dict;
    bool is_object;  // the keys are names of attributes
    std::vector<Place> places;
};

struct Question {
    PyObject* callable;
    std::vector<PyObject*> given;
    PyObject* answer;
};

struct TensorState {
    PyObject* value;
    PyTypeObject* type;
    const unsigned char* implementation;
    void* data;
    std::vector<unsigned char> bytes;
};

using DataPointer = void* (*)(PyObject*);

// The virtual table and the reference count come first, and the second changes all the time.
constexpr std::size_t SKIPPED = 16;

struct State {
    std::vector<Object> objects;
    std::vector<Group> groups;
    std::vector<PyObject*> empty;
    std::vector<Question> questions;
    std::vector<TensorState> tensors;
    std::ptrdiff_t offset = 0;
    std::size_t size = 0;
    DataPointer data_pointer = nullptr;
    std::vector<PyObject*> held;
};

struct Watch {
    PyObject_HEAD
    State* state;
};

void hold(State& state, PyObject* value) {
    Py_INCREF(value);
    state.held.push_back(value);
}

const unsigned char* implementation_of(PyObject* tensor, std::ptrdiff_t offset) {
    const unsigned char* found;
    std::memcpy(&found, reinterpret_cast<const char*>(tensor) + offset, sizeof found);
    return found;
}

// (object, class, dict of its attributes) each.
bool add_objects(State& state, PyObject* objects) {
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(objects); ++index) {
        PyObject *value, *type, *attributes;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(objects, index), "OO!O", &value, &PyType_Type, &type, &attributes))
            return false;
        hold(state, value);
        hold(state, type);
        hold(state, attributes);
        state.objects.push_back({value, reinterpret_cast<PyTypeObject*>(type), attributes});
    }
    return true;
}

// (container, length, ((key, value), ...)) each, with a length of -2 where keys are names of attributes; `missing`
// stands for no value. A dict of a known length has the places in this order. No dict has the version 0: each place is
// looked up at first, since what is said to be there was read earlier.
bool add_groups(State& state, PyObject* groups, PyObject* missing) {
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(groups); ++index) {
        PyObject *container, *places;
        Py_ssize_t length;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(groups, index), "OnO!", &container, &length, &PyTuple_Type, &places))
            return false;
        bool is_object = length == -2;
        Group group{container, 0, length, !is_object && PyDict_CheckExact(container), is_object, {}};
        hold(state, container);
        for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(places); ++place) {
            PyObject *key, *value;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(places, place), "OO", &key, &value)) return false;
            hold(state, key);
            hold(state, value);
            group.places.push_back({key, value == missing ? nullptr : value});
        }
        state.groups.push_back(std::move(group));
    }
    return true;
}

// (callable, its arguments, the answer) each.
bool add_questions(State& state, PyObject* questions) {
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(questions); ++index) {
        PyObject *callable, *given, *answer;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(questions, index), "OO!O", &callable, &PyTuple_Type, &given, &answer))
            return false;
        hold(state, PyTuple_GET_ITEM(questions, index));
        Question question{callable, {}, answer};
        for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(given); ++place)
            question.given.push_back(PyTuple_GET_ITEM(given, place));
        state.questions.push_back(std::move(question));
    }
    return true;
}

// False: the tensor has no memory of the usual kind (it is sparse, say), or must not be asked for its own.
bool find_data(DataPointer data_pointer, PyObject* tensor, void*& found) {
    try {
        found = data_pointer(tensor);
        return true;
    } catch (...) {
        return false;
    }
}

bool add_tensors(State& state, PyObject* values) {
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(values); ++index) {
        PyObject* value = PyTuple_GET_ITEM(values, index);
        void* data = nullptr;
        if (!find_data(state.data_pointer, value, data)) {
            PyErr_SetString(PyExc_ValueError, "a tensor without a data pointer");
            return false;
        }
        hold(state, value);
        hold(state, reinterpret_cast<PyObject*>(Py_TYPE(value)));
        const unsigned char* found = implementation_of(value, state.offset);
        std::vector<unsigned char> bytes(found + SKIPPED, found + state.size);
        state.tensors.push_back({value, Py_TYPE(value), found, data, std::move(bytes)});
    }
    return true;
}

bool same_objects(const State& state) {
    for (const Object& object : state.objects) {
        if (Py_TYPE(object.value) != object.type) return false;
        PyObject* attributes = PyObject_GenericGetDict(object.value, nullptr);
        if (attributes == nullptr) {
            PyErr_Clear();
            return false;
        }
        bool same = attributes == object.attributes;
        Py_DECREF(attributes);
        if (!same) return false;
    }
    return true;
}

// What is raised means that something changed; but not what is meant for the caller, such as KeyboardInterrupt.
void forget_error() {
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
}

bool same_place(const Group& group, const Place& place) {
    if (group.is_dict) {
        PyObject* found = PyDict_GetItemWithError(group.container, place.key);
        if (found == nullptr && PyErr_Occurred()) {
            forget_error();
            return false;
        }
        return found == place.value;
    }
    PyObject* found = group.is_object ? PyObject_GetAttr(group.container, place.key)
                                      : PyObject_GetItem(group.container, place.key);
    if (group.is_object && found == nullptr) {
        forget_error();
        return false;
    }
    if (found == nullptr) {
        bool gone = PyErr_ExceptionMatches(PyExc_LookupError);
        forget_error();
        return gone && place.value == nullptr;
    }
    bool same = found == place.value;
    Py_DECREF(found);
    return same;
}

// Of a dict that has nothing else in it: who goes through it gets the values in the order in which they were.
bool same_order(const Group& group) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    for (const Place& place : group.places)
        if (!PyDict_Next(group.container, &position, &key, &value) || value != place.value) return false;
    return true;
}

bool same_groups(State& state) {
    for (Group& group : state.groups) {
        uint64_t version = group.is_dict ? version_of(group.container) : 0;
        if (HAS_VERSIONS && group.is_dict && version == group.version) continue;
        if (group.length >= 0 && PyObject_Size(group.container) != group.length) {
            forget_error();
            return false;
        }
        for (const Place& place : group.places)
            if (!same_place(group, place)) return false;
        if (group.is_dict && group.length >= 0 && !same_order(group)) return false;
        group.version = version;  // as it was before the places were read
    }
    return true;
}

bool all_empty(const State& state) {
    for (PyObject* dict : state.empty)
        if (PyDict_GET_SIZE(dict) != 0) return false;
    return true;
}

bool same_answers(const State& state) {
    for (const Question& question : state.questions) {
        PyObject* answer = PyObject_Vectorcall(question.callable, question.given.data(), question.given.size(), nullptr);
        int same = answer == nullptr ? -1 : PyObject_RichCompareBool(answer, question.answer, Py_EQ);
        Py_XDECREF(answer);
        if (same < 0) forget_error();
        if (same != 1) return false;
    }
    return true;
}

bool same_tensors(const State& state) {
    for (const TensorState& tensor : state.tensors) {
        const unsigned char* found = implementation_of(tensor.value, state.offset);
        if (found != tensor.implementation || Py_TYPE(tensor.value) != tensor.type) return false;
        if (std::memcmp(found + SKIPPED, tensor.bytes.data(), tensor.bytes.size()) != 0) return false;
        void* data = nullptr;
        if (!find_data(state.data_pointer, tensor.value, data) || data != tensor.data) return false;
    }
    return true;
}

PyObject* watch_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *objects, *groups, *empty, *questions, *tensors, *missing;
    Py_ssize_t offset, size;
    unsigned long long data_pointer;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!OnnK", &PyTuple_Type, &objects, &PyTuple_Type, &groups, &PyTuple_Type,
                          &empty, &PyTuple_Type, &questions, &PyTuple_Type, &tensors, &missing, &offset, &size, &data_pointer))
        return nullptr;
    Watch* self = reinterpret_cast<Watch*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->state = new (std::nothrow) State();
    if (self->state == nullptr) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    State& state = *self->state;
    state.offset = offset;
    state.size = static_cast<std::size_t>(size);
    state.data_pointer = reinterpret_cast<DataPointer>(data_pointer);
    bool good = add_objects(state, objects) && add_groups(state, groups, missing);
    for (Py_ssize_t index = 0; good && index < PyTuple_GET_SIZE(empty); ++index) {
        PyObject* dict = PyTuple_GET_ITEM(empty, index);
        good = PyDict_Check(dict);
        if (!good) PyErr_SetString(PyExc_TypeError, "empty: a dict is needed");
        hold(state, dict);
        state.empty.push_back(dict);
    }
    if (!good || !add_questions(state, questions) || !add_tensors(state, tensors)) {
        Py_DECREF(self);
        return nullptr;
    }
    return reinterpret_cast<PyObject*>(self);
}

int watch_traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    State* state = reinterpret_cast<Watch*>(object)->state;
    if (state != nullptr)
        for (PyObject* value : state->held) Py_VISIT(value);
    return 0;
}

int watch_clear(PyObject* object) {
    Watch* self = reinterpret_cast<Watch*>(object);
    State* state = self->state;
    self->state = nullptr;
    if (state != nullptr) {
        for (PyObject* value : state->held) Py_DECREF(value);
        delete state;
    }
    return 0;
}

void watch_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    watch_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* watch_intact(PyObject* object, PyObject*) {
    State* state = reinterpret_cast<Watch*>(object)->state;
    bool same = state != nullptr && same_objects(*state) && same_groups(*state) && all_empty(*state) &&
                same_answers(*state) && same_tensors(*state);
    return PyErr_Occurred() ? nullptr : PyBool_FromLong(same);
}

PyMethodDef watch_methods[] = {
    {"intact", watch_intact, METH_NOARGS, "Whether everything is as it was when this was made."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot watch_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(watch_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(watch_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(watch_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(watch_clear)},
    {Py_tp_methods, watch_methods},
    {0, nullptr},
};

PyType_Spec watch_spec = {"sizewise.native.Watch", sizeof(Watch), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                          watch_slots};

// -- tapes

constexpr std::size_t MOST_ARGUMENTS = 64;
using Invoke = void (*)(void*, const int64_t*);

// Pointers and 64-bit numbers are passed alike.
template <std::size_t... Index>
void invoke(void* function, const int64_t* values) {
    reinterpret_cast<void (*)(decltype((void)Index, int64_t{})...)>(function)(values[Index]...);
}
template <std::size_t... Index>
constexpr Invoke invoke_with(std::index_sequence<Index...>) { return &invoke<Index...>; }
template <std::size_t... Count>
std::vector<Invoke> table(std::index_sequence<Count...>) {
    return {invoke_with(std::make_index_sequence<Count>())...};
}
const std::vector<Invoke> INVOKE = table(std::make_index_sequence<MOST_ARGUMENTS + 1>());

enum Kind : long { CALL, KERNEL, THREE, ADDMM };

struct Step {
    long kind;
    void* function;                // of KERNEL, THREE and ADDMM
    std::vector<int64_t> values;   // their arguments
    double beta, alpha;            // of ADDMM
    PyObject* callable;            // of CALL; the others' too, which says what is wrong where they fail
    std::vector<PyObject*> given;
    std::size_t positional;
    PyObject* names;               // a tuple of keywords, or nullptr
};

struct Steps {
    std::vector<Step> steps;
    std::vector<PyObject*> held;
};

struct Tape {
    PyObject_HEAD
    Steps* state;
};

bool call(const Step& step) {
    PyObject* result = PyObject_Vectorcall(step.callable, step.given.data(), step.positional, step.names);
    if (result == nullptr) return false;
    Py_DECREF(result);
    return true;
}

// Without the GIL. False: it failed, with what a kernel said in `words`.
bool run(const Step& step, std::string& words) {
    try {
        void* const* tensors = reinterpret_cast<void* const*>(step.values.data());
        if (step.kind == KERNEL) {
            INVOKE[step.values.size()](step.function, step.values.data());
            return true;
        }
        if (step.kind == THREE)
            return reinterpret_cast<int32_t (*)(void*, void*, void*)>(step.function)(tensors[0], tensors[1],
                                                                                    tensors[2]) == 0;
        return reinterpret_cast<int32_t (*)(void*, void*, void*, void*, double, double)>(step.function)(
                   tensors[0], tensors[1], tensors[2], tensors[3], step.beta, step.alpha) == 0;
    } catch (const std::exception& problem) {
        words = problem.what();
    } catch (...) {
        words = "unhandled error";
    }
    return false;
}

PyObject* tape_replay(PyObject* object, PyObject*) {
    Steps* state = reinterpret_cast<Tape*>(object)->state;
    if (state == nullptr) Py_RETURN_NONE;
    const std::vector<Step>& steps = state->steps;
    std::size_t next = 0;
    while (next < steps.size()) {
        if (steps[next].kind == CALL) {
            if (!call(steps[next++])) return nullptr;
            continue;
        }
        std::string words;
        bool good = true;
        Py_BEGIN_ALLOW_THREADS
        while (good && next < steps.size() && steps[next].kind != CALL) good = run(steps[next++], words);
        Py_END_ALLOW_THREADS
        if (good) continue;
        if (!words.empty()) {
            PyErr_SetString(PyExc_RuntimeError, words.c_str());
            return nullptr;
        }
        if (!call(steps[next - 1])) return nullptr;  // an operator: its own error, or after all none
    }
    Py_RETURN_NONE;
}

bool add_step(Steps& state, PyObject* tuple) {
    long kind;
    unsigned long long function;
    PyObject *values, *callable, *given, *names;
    double beta, alpha;
    if (!PyArg_ParseTuple(tuple, "lKO!ddOO!O", &kind, &function, &PyTuple_Type, &values, &beta, &alpha, &callable,
                          &PyTuple_Type, &given, &names))
        return false;
    Step step{kind, reinterpret_cast<void*>(function), {}, beta, alpha, callable, {}, 0, nullptr};
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(values); ++index) {
        step.values.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(values, index)));
        if (PyErr_Occurred()) return false;
    }
    std::size_t wanted = kind == THREE ? 3 : kind == ADDMM ? 4 : step.values.size();
    if (step.values.size() != wanted || wanted > MOST_ARGUMENTS) {
        PyErr_SetString(PyExc_ValueError, "a step has another number of arguments than its kind takes");
        return false;
    }
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(given); ++index)
        step.given.push_back(PyTuple_GET_ITEM(given, index));
    Py_ssize_t keywords = names == Py_None ? 0 : PyTuple_GET_SIZE(names);
    step.positional = static_cast<std::size_t>(PyTuple_GET_SIZE(given) - keywords);
    step.names = keywords != 0 ? names : nullptr;
    Py_INCREF(tuple);
    state.held.push_back(tuple);
    state.steps.push_back(std::move(step));
    return true;
}

PyObject* tape_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* steps;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &steps)) return nullptr;
    Tape* self = reinterpret_cast<Tape*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->state = new (std::nothrow) Steps();
    bool good = self->state != nullptr;
    if (!good) PyErr_NoMemory();
    for (Py_ssize_t index = 0; good && index < PyTuple_GET_SIZE(steps); ++index) {
        PyObject* tuple = PyTuple_GET_ITEM(steps, index);
        good = PyTuple_Check(tuple) && add_step(*self->state, tuple);
        if (!good && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a step is a tuple");
    }
    if (good) return reinterpret_cast<PyObject*>(self);
    Py_DECREF(self);
    return nullptr;
}

int tape_traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    Steps* state = reinterpret_cast<Tape*>(object)->state;
    if (state != nullptr)
        for (PyObject* value : state->held) Py_VISIT(value);
    return 0;
}

int tape_clear(PyObject* object) {
    Tape* self = reinterpret_cast<Tape*>(object);
    Steps* state = self->state;
    self->state = nullptr;
    if (state != nullptr) {
        for (PyObject* value : state->held) Py_DECREF(value);
        delete state;
    }
    return 0;
}

void tape_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    tape_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef tape_methods[] = {
    {"replay", tape_replay, METH_NOARGS, "Make every call, in order."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot tape_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(tape_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(tape_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(tape_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(tape_clear)},
    {Py_tp_methods, tape_methods},
    {0, nullptr},
};

PyType_Spec tape_spec = {"sizewise.native.Tape", sizeof(Tape), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, tape_slots};

// -- arguments into fixed memory

struct Target {
    void* to;
    std::size_t bytes;
    void* zeros;  // what is filled with zeros, behind the copied part
    std::size_t zero_bytes;
};

struct Fill {
    std::vector<Target> targets;
    DataPointer data_pointer;
    PyObject* held;
};

struct Inputs {
    PyObject_HEAD
    Fill* fill;
};

PyObject* inputs_copy(PyObject* object, PyObject* const* given, Py_ssize_t count) {
    Fill* fill = reinterpret_cast<Inputs*>(object)->fill;
    if (fill == nullptr || count != static_cast<Py_ssize_t>(fill->targets.size())) {
        PyErr_SetString(PyExc_TypeError, "another number of arguments than there are inputs");
        return nullptr;
    }
    for (Py_ssize_t index = 0; index < count; ++index) {
        const Target& target = fill->targets[static_cast<std::size_t>(index)];
        if (target.zero_bytes != 0) std::memset(target.zeros, 0, target.zero_bytes);
        if (target.bytes == 0) continue;
        void* data = nullptr;
        if (!find_data(fill->data_pointer, given[index], data) || data == nullptr) {
            PyErr_SetString(PyExc_RuntimeError, "an argument has no memory");
            return nullptr;
        }
        std::memmove(target.to, data, target.bytes);
    }
    Py_RETURN_NONE;
}

PyObject* inputs_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *targets, *held;
    unsigned long long data_pointer;
    if (!PyArg_ParseTuple(args, "O!OK", &PyTuple_Type, &targets, &held, &data_pointer)) return nullptr;
    Inputs* self = reinterpret_cast<Inputs*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->fill = new (std::nothrow) Fill{{}, reinterpret_cast<DataPointer>(data_pointer), held};
    if (self->fill == nullptr) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    Py_INCREF(held);
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(targets); ++index) {
        unsigned long long to, zeros;
        Py_ssize_t bytes, zero_bytes;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(targets, index), "KnKn", &to, &bytes, &zeros, &zero_bytes)) {
            Py_DECREF(self);
            return nullptr;
        }
        self->fill->targets.push_back({reinterpret_cast<void*>(to), static_cast<std::size_t>(bytes),
                                       reinterpret_cast<void*>(zeros), static_cast<std::size_t>(zero_bytes)});
    }
    return reinterpret_cast<PyObject*>(self);
}

int inputs_traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    Fill* fill = reinterpret_cast<Inputs*>(object)->fill;
    if (fill != nullptr) Py_VISIT(fill->held);
    return 0;
}

int inputs_clear(PyObject* object) {
    Inputs* self = reinterpret_cast<Inputs*>(object);
    Fill* fill = self->fill;
    self->fill = nullptr;
    if (fill != nullptr) {
        Py_DECREF(fill->held);
        delete fill;
    }
    return 0;
}

void inputs_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    inputs_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef inputs_methods[] = {
    {"copy", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(inputs_copy)), METH_FASTCALL,
     "Copy contiguous tensors of the known sizes to where they belong, and fill up what is behind them."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot inputs_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(inputs_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(inputs_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(inputs_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(inputs_clear)},
    {Py_tp_methods, inputs_methods},
    {0, nullptr},
};

PyType_Spec inputs_spec = {"sizewise.native.Inputs", sizeof(Inputs), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           inputs_slots};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "fast", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_fast() {
    PyObject* module = PyModule_Create(&definition);
    if (module == nullptr) return nullptr;
    struct {
        const char* name;
        PyType_Spec* spec;
    } kinds[] = {{"Watch", &watch_spec}, {"Tape", &tape_spec}, {"Inputs", &inputs_spec}};
    for (auto& kind : kinds) {
        PyObject* type = PyType_FromSpec(kind.spec);
        if (type == nullptr || PyModule_AddObjectRef(module, kind.name, type) < 0) {
            Py_XDECREF(type);
            Py_DECREF(module);
            return nullptr;
        }
        Py_DECREF(type);
    }
    return module;
}
