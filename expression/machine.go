package expression

import (
	"fmt"

	"github.com/expr-lang/expr/vm"
)

// Bounds of one evaluation. They count steps and sizes, never time, so that every machine stops at
// the same place.
const (
	// MaxSteps bounds the work of one evaluation. A step is about the cost of one operation (some
	// 50 ns), so an expression ends within a tenth of a second. That is a loop of 100,000 simple
	// rounds, or 300 × 300 nested ones.
	MaxSteps = 1_000_000
	// MaxText bounds every text that an expression builds: the largest size of a state.
	MaxText = 256 << 10
	// MaxResult bounds the JSON size of a result, roughly. It is twice the largest message, so
	// that any event can be passed on. Without it a list of references to one large text could
	// fill the memory when it is encoded.
	MaxResult = 2 << 20
	// stepBytes is how many bytes of text are read or copied in one step.
	stepBytes = 32
	// keySteps is the cost of making or sorting one key of a map.
	keySteps = 6
	// loopSteps is the cost of a closure besides its rounds, because the VM allocates for every
	// loop.
	loopSteps = 16
	// keptLoops bounds the loops of a recycled VM, because it keeps the scopes of all of them.
	keptLoops = 1000
)

// fault is the panic with which a primitive stops the VM, which adds the position.
type fault struct {
	message string
	cause   error
}

func (f *fault) Error() string { return f.message }
func (f *fault) Unwrap() error { return f.cause }

func fail(format string, args ...any) {
	panic(&fault{message: fmt.Sprintf(format, args...)})
}

// reference is a variable and the members to follow from it.
type reference struct {
	name string
	path []string
}

// in returns what load returns; if ok is false, load reports the error.
func (r *reference) in(env Env) (v any, ok bool) {
	v, known := env.Vars[r.name]
	if !known && env.Source != nil {
		var err error
		if v, err = env.Source.Lazy(r.name); err != nil {
			return nil, false
		}
	}
	for _, name := range r.path {
		object, is := v.(map[string]any)
		if !is && v != nil {
			return nil, false
		}
		v = object[name]
	}
	return v, true
}

// machine evaluates one program at a time: a VM, the primitives that its code calls, and the
// budget of the evaluation.
type machine struct {
	vm         vm.VM
	primitives map[string]any
	env        Env
	lazy       map[string]any
	steps      int
	most       int // steps
	loops      int
	text       string   // of the pattern compiled last
	pattern    *pattern // compiled last
}

func newMachine() *machine {
	m := &machine{}
	m.vm.MemoryBudget = 4 * MaxSteps // a second limit: the steps end first
	m.primitives = map[string]any{
		"load": m.load, "walk": m.walk, "index": m.index, "bool": m.bool, "counted": m.counted,
		"list": m.list, "key": m.key, "call": m.call,
		"add": m.add, "subtract": m.subtract, "multiply": m.multiply, "divide": m.divide,
		"modulo": m.modulo, "power": m.power, "span": m.span, "negative": m.negative, "positive": m.positive,
		"equal": m.equal, "unequal": m.unequal, "less": m.less, "atMost": m.atMost, "more": m.more, "atLeast": m.atLeast,
		"in": m.in, "contains": m.contains, "startsWith": m.startsWith, "endsWith": m.endsWith, "matches": m.matches,
	}
	return m
}

func (m *machine) begin(env Env) {
	m.env, m.steps, m.loops, m.most = env, 0, 0, MaxSteps
	if env.Budget != nil {
		m.most = min(MaxSteps, max(env.Budget.left, 0))
	}
}

// reset drops the evaluation's values, and reports whether the machine may be recycled.
func (m *machine) reset() bool {
	m.env, m.text, m.pattern = Env{}, "", nil
	clear(m.lazy)
	return m.loops <= keptLoops
}

// charge pays for n steps, or stops the evaluation.
func (m *machine) charge(n int) {
	m.steps += n
	if m.steps <= m.most && n >= 0 && m.steps >= 0 {
		return
	}
	if m.most < MaxSteps {
		fail("%s", overBudget(m.env.Budget))
	}
	fail("the expression does too much: it passed its budget of %d steps", MaxSteps)
}

func overBudget(b *Budget) string {
	return fmt.Sprintf("this is too much for one event: its expressions and what they give passed their budget of %d steps together", b.of)
}

// chargeText pays for reading or copying n bytes.
func (m *machine) chargeText(n int) { m.charge(n / stepBytes) }

// built checks the size of a text before it is built, and charges it.
func (m *machine) built(n int) {
	if n > MaxText || n < 0 {
		fail("the text would have %d bytes, more than %d", n, MaxText)
	}
	m.chargeText(n)
}

func (m *machine) load(ref any) any {
	r := ref.(*reference)
	v, ok := m.env.Vars[r.name]
	if ok {
		return follow(v, r.path)
	}
	return follow(m.ask(r.name), r.path)
}

// ask loads a lazy variable, once for each evaluation.
func (m *machine) ask(name string) any {
	if m.env.Source == nil {
		return nil
	}
	if v, ok := m.lazy[name]; ok {
		return v
	}
	v, err := m.env.Source.Lazy(name)
	if err != nil {
		panic(&fault{message: name + ": " + err.Error(), cause: err})
	}
	if m.lazy == nil {
		m.lazy = map[string]any{}
	}
	m.lazy[name] = v
	return v
}

func (m *machine) walk(v, ref any) any { return follow(v, ref.(*reference).path) }

// follow returns the member at a path. A member of null, and a missing one, is null.
func follow(v any, path []string) any {
	for _, name := range path {
		switch object := v.(type) {
		case map[string]any:
			v = object[name]
		case nil:
			return nil
		default:
			noMember(v, name)
		}
	}
	return v
}

func noMember(v any, name string) {
	switch _, list := v.([]any); {
	case list && (name == "length" || name == "size"), isText(v) && name == "length":
		fail("%s has no member %s: write len(…)", kind(v), name)
	case list:
		fail("a list has no member %s: take an item, as in list[0].%s, or map(list, .%s)", name, name, name)
	}
	fail("%s has no member %s", kind(v), name)
}

// index returns an item by its number, from the end if negative, or a member by its name. Out of
// range is null, like a missing member.
func (m *machine) index(v, i any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		name, ok := i.(string)
		if !ok {
			fail("a member of a map is taken by text, not by %s", kind(i))
		}
		m.chargeText(len(name))
		return v[name]
	case []any:
		return item(v, i)
	case string:
		return m.character(v, i)
	}
	fail("%s has no members", kind(v))
	return nil
}

func item(list []any, i any) any {
	n := position(i, len(list))
	if n < 0 || n >= len(list) {
		return nil
	}
	return list[n]
}

// position counts from the end where i is negative.
func position(i any, length int) int {
	n, ok := i.(int)
	if !ok {
		fail("an item is taken by an integer, not by %s", kind(i))
	}
	if n < 0 {
		n += length
	}
	return n
}

func (m *machine) bool(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil:
		return false
	}
	fail("a condition is true or false, this is %s", kind(v))
	return false
}

func (m *machine) counted(v any) bool {
	if b, ok := v.(bool); ok {
		return b
	}
	fail("count without a condition counts what is true, and an item is %s: write len(list) for the number of items", kind(v))
	return false
}

// list checks the list of a closure, and charges all its rounds.
func (m *machine) list(v, around any) []any {
	l := around.(*roundCost)
	list := asList(l.name, v)
	m.loops++
	m.charge(loopSteps + len(list)*(l.cost+1))
	return list
}

func asList(user string, v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case nil:
		fail("%s needs a list, got null: write x ?? [] where it may be missing", user)
	case map[string]any:
		fail("%s needs a list, got a map: write values(x) or toPairs(x)", user)
	}
	fail("%s needs a list, got %s", user, kind(v))
	return nil
}

// key checks a computed key of a map literal.
func (m *machine) key(v any) string {
	s, ok := v.(string)
	if !ok {
		fail("a map's key is a text, this is %s: write string(…)", kind(v))
	}
	m.chargeText(len(s))
	return s
}

// call runs a function of the library.
func (m *machine) call(args ...any) any {
	f := args[0].(*function)
	m.charge(f.steps)
	return f.run(m, args[1:])
}
