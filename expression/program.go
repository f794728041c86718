package expression

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// Options says what an expression may refer to.
type Options struct {
	// Names are the variables in scope. Another name is a compile error that suggests the nearest.
	Names []string
	// Numbers are the variables that are always a number. A comparison of one with a literal text is a
	// compile error.
	Numbers []string
	// Kept says that an earlier build compiled the source. Then literal arguments are not checked,
	// because a stored saga must always compile.
	Kept bool
}

// Error says why an expression does not compile or failed. Line and Column count from 1 within the
// source (columns in characters); zero when unknown. The message names types and sizes and never
// values, because payloads must not be logged.
type Error struct {
	Source       string
	Line, Column int
	Message      string
	// Err is the error of Source.Lazy or of a panic; nil otherwise.
	Err error
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Err }

// Program is one compiled expression. It is safe for concurrent use.
type Program struct {
	source   string
	code     *vm.Program
	names    []string
	refs     [][]string
	plain    *reference // set if the program is only a name or a member
	machines sync.Pool  // of *machine: a VM's stacks are worth keeping
}

// Compile checks and compiles a source. It returns as many errors at once as it can.
func Compile(source string, o Options) (*Program, []*Error) {
	tree, err := parse(source)
	if err != nil {
		return nil, []*Error{err}
	}
	l := newLowering(source, o)
	root := l.lower(tree.Node)
	if len(l.errs) > 0 {
		return nil, l.errs
	}
	tree.Node = root
	plain := reading(root)
	code, err := assemble(source, tree)
	if err != nil {
		return nil, []*Error{err}
	}
	return &Program{source: source, code: code, names: l.usedNames(), refs: l.usedRefs(), plain: plain}, nil
}

// Source of the program.
func (p *Program) Source() string { return p.source }

// Names lists the variables that the program refers to, sorted. An environment needs no others.
func (p *Program) Names() []string { return slices.Clone(p.names) }

// Refs lists the member chains that the program refers to, sorted: "state.total",
// "step.ship.result.id", `step["hold"].all` as step.hold.all. Each element is a path. A chain ends
// at an index that is no literal text.
func (p *Program) Refs() [][]string {
	out := make([][]string, len(p.refs))
	for i, ref := range p.refs {
		out[i] = slices.Clone(ref)
	}
	return out
}

// Path returns the variable and the member that the program reads, if it does nothing else. The
// caller must not change the path.
func (p *Program) Path() (name string, path []string, ok bool) {
	if p.plain == nil {
		return "", nil, false
	}
	return p.plain.name, p.plain.path, true
}

// Env is the environment of one evaluation.
type Env struct {
	// Vars are canonical values (see jsonvalue.Canonical). An evaluation does not change them.
	Vars map[string]any
	// Source loads variables that are not in Vars; without it they are null.
	Source Source
	// Budget bounds this evaluation together with others; with nil only MaxSteps does.
	Budget *Budget
}

// Source loads values when an evaluation needs them. The evaluation's goroutine calls it.
type Source interface {
	// Lazy returns a variable of Names() that is not in Vars. It is called once for each
	// evaluation.
	Lazy(name string) (any, error)
	// UUID derives the id for uuid("name"); ok false is an error.
	UUID(name string) (id string, ok bool)
}

// Eval returns a canonical value that the caller owns. Errors are *Error.
func (p *Program) Eval(env Env) (any, error) {
	v, err := p.run(env)
	if err != nil {
		return nil, err
	}
	owned, err := p.owned(v)
	if err == nil && env.Budget != nil {
		err = p.pay(env.Budget, Read(owned))
	}
	return owned, err
}

// pay charges a budget outside of a machine.
func (p *Program) pay(b *Budget, steps int) error {
	if b.Spend(steps) {
		return nil
	}
	return &Error{Source: p.source, Message: overBudget(b)}
}

func (p *Program) owned(v any) (any, error) {
	owned, cause := own(v, MaxResult)
	if cause != nil {
		return nil, &Error{Source: p.source, Message: cause.Error()}
	}
	return owned, nil
}

// Share returns a canonical value that shares lists and maps with the environment and the program:
// do not change it. Errors are those of Eval.
func (p *Program) Share(env Env) (any, error) {
	v, err := p.run(env)
	if err != nil {
		return nil, err
	}
	c := inspector{left: MaxResult}
	if !c.canonical(v, 0) {
		if v, err = p.owned(v); err != nil {
			return nil, err
		}
		c.values = 0
		c.left = MaxResult
		c.canonical(v, 0)
	}
	return v, p.pay(env.Budget, c.values/walkedValues)
}

// True evaluates a condition; null is false, and values other than true and false are errors.
func (p *Program) True(env Env) (bool, error) {
	v, err := p.run(env)
	if err != nil {
		return false, err
	}
	switch v := v.(type) {
	case bool:
		return v, nil
	case nil:
		return false, nil
	}
	return false, &Error{Source: p.source, Line: 1, Column: 1, Message: "a condition is true or false, this is " + kind(v)}
}

// run evaluates on a pooled machine. The value may share lists and maps with
// env.Vars and with the program.
func (p *Program) run(env Env) (any, error) {
	if p.plain != nil {
		if v, ok := p.plain.in(env); ok {
			return v, nil
		}
	}
	m, ok := p.machines.Get().(*machine)
	if !ok {
		m = newMachine()
	}
	m.begin(env)
	v, err := m.vm.Run(p.code, m.primitives)
	steps := m.steps
	if m.reset() {
		p.machines.Put(m)
	}
	within := env.Budget.Spend(steps) // a failed evaluation costs, too: a let that fails is not always poison
	if err != nil {
		return nil, p.failure(err)
	}
	if !within {
		return nil, &Error{Source: p.source, Message: overBudget(env.Budget)}
	}
	return v, nil
}

// failure converts a panic of the VM to an Error with its position.
func (p *Program) failure(err error) *Error {
	out := &Error{Source: p.source, Message: err.Error(), Err: err}
	var at *file.Error
	if !errors.As(err, &at) {
		return out
	}
	out.Line, out.Column, out.Message = at.Line, at.Column+1, at.Message
	var f *fault
	if errors.As(err, &f) {
		out.Message, out.Err = f.message, f.cause
	}
	return out
}

// guard converts a panic of the expression library to an Error.
func guard(source string, err **Error) {
	if r := recover(); r != nil {
		*err = &Error{Source: source, Message: "the expression cannot be compiled", Err: fmt.Errorf("panic: %v", r)}
	}
}
