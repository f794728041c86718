package expression

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// Options say what an expression may refer to.
type Options struct {
	// Names are the variables in scope. Anything else is a compile error that
	// names the nearest.
	Names []string
}

// Error is an expression that does not compile or that failed. Line and Column
// count from 1 within the source (columns in characters); zero when unknown.
// The message names types and sizes, never values: payloads are not for logs.
type Error struct {
	Source       string
	Line, Column int
	Message      string
	// Err is what Source.Lazy or a panic gave; nil otherwise.
	Err error
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Err }

// Program is one compiled expression, safe for concurrent use.
type Program struct {
	source   string
	code     *vm.Program
	names    []string
	refs     [][]string
	plain    *reference // set where it is a name or a member and nothing more
	machines sync.Pool  // of *machine: a VM's stacks are worth keeping
}

// Compile checks and compiles a source. Errors are *Error; all of them that can be told at once.
func Compile(source string, o Options) (*Program, []*Error) {
	tree, err := parse(source)
	if err != nil {
		return nil, []*Error{err}
	}
	l := newLowering(source, o.Names)
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

// Names lists the variables it refers to, sorted: so that only those are put in the environment.
func (p *Program) Names() []string { return slices.Clone(p.names) }

// Refs lists the member chains it refers to, sorted: "state.total",
// "step.ship.result.id", `step["hold"].all` as step.hold.all. Each elem is a path.
// A chain ends where it is indexed by anything but a literal text.
func (p *Program) Refs() [][]string {
	out := make([][]string, len(p.refs))
	for i, ref := range p.refs {
		out[i] = slices.Clone(ref)
	}
	return out
}

// Path is the member that the program gives, of what variable, where it does nothing else;
// the caller leaves the path as it is.
func (p *Program) Path() (name string, path []string, ok bool) {
	if p.plain == nil {
		return "", nil, false
	}
	return p.plain.name, p.plain.path, true
}

// Env is what one evaluation sees.
type Env struct {
	// Vars are canonical values (see jsonvalue.Canonical), never changed by an evaluation.
	Vars map[string]any
	// Source is asked for what is not in Vars; without it such a name is null.
	Source Source
	// Budget bounds this evaluation and others together; nil where only MaxSteps does.
	Budget *Budget
}

// Source gives what an evaluation needs, when it needs it.
type Source interface {
	// Lazy is asked for a name of Names() that is not in Vars, once per evaluation.
	Lazy(name string) (any, error)
	// UUID derives the id of uuid("name"); where ok is false that is an error.
	UUID(name string) (id string, ok bool)
}

// Eval evaluates to a canonical value that the caller owns. Errors are *Error.
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

// pay spends a budget outside of a machine.
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

// Share evaluates to a canonical value that shares lists and maps with the
// environment and with the program: nobody may change it. Errors are those of Eval.
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

// True evaluates a condition: anything but true or false is an error; null is false.
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
	if m.end() {
		p.machines.Put(m)
	}
	within := env.Budget.Spend(steps) // what failed was work, too: a let that fails is not always poison
	if err != nil {
		return nil, p.failure(err)
	}
	if !within {
		return nil, &Error{Source: p.source, Message: overBudget(env.Budget)}
	}
	return v, nil
}

// failure turns what the VM recovered into an Error with its place.
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

// guard turns a panic of the expression library into an Error.
func guard(source string, err **Error) {
	if r := recover(); r != nil {
		*err = &Error{Source: source, Message: "the expression cannot be compiled", Err: fmt.Errorf("panic: %v", r)}
	}
}
