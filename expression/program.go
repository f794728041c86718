// Package expression is what a manifest's expressions may say: expr-lang/expr
// made deterministic and bounded. It is pure.
package expression

// Options say what an expression may refer to.
type Options struct {
	// Names are the variables in scope. Anything else is a compile error that
	// names the nearest.
	Names []string
}

// Error is an expression that does not compile or that failed. Line and Column
// count from 1 within the source; zero when unknown.
type Error struct {
	Source       string
	Line, Column int
	Message      string
}

func (e *Error) Error() string { return e.Message }

// Program is one compiled expression, safe for concurrent use.
type Program struct{}

// Compile checks and compiles a source. Errors are *Error; all of them that can be told at once.
func Compile(source string, o Options) (*Program, []*Error) { return nil, nil }

// Source of the program.
func (p *Program) Source() string { return "" }

// Names lists the variables it refers to, sorted: so that only those are put in the environment.
func (p *Program) Names() []string { return nil }

// Refs lists the member chains it refers to, sorted: "state.total",
// "step.ship.result.id", `step["hold"].all` as step.hold.all. Each elem is a path.
func (p *Program) Refs() [][]string { return nil }

// Env is what one evaluation sees.
type Env struct {
	// Vars are canonical values (see edda.Canonical), never changed by an evaluation.
	Vars map[string]any
	// Lazy, when set, is asked for a name of Names() that is not in Vars.
	Lazy func(name string) (any, error)
	// UUID derives the id of uuid("name"); nil makes uuid an error.
	UUID func(name string) string
}

// Eval evaluates to a canonical value that the caller owns. Errors are *Error.
func (p *Program) Eval(env Env) (any, error) { return nil, nil }

// True evaluates a condition: anything but true or false is an error; null is false.
func (p *Program) True(env Env) (bool, error) { return false, nil }
