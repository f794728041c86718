package expression_test

import (
	"fmt"

	"edda/expression"
)

// An expression sees only the variables that it is given.
func ExampleCompile() {
	p, _ := expression.Compile("sum(event.items, .qty * .price)", expression.Options{Names: []string{"event"}})
	total, err := p.Eval(expression.Env{Vars: map[string]any{"event": map[string]any{"items": []any{
		map[string]any{"qty": 2, "price": 10}, map[string]any{"qty": 1, "price": 5},
	}}}})
	fmt.Println(total, err)

	_, problems := expression.Compile("evnt.total + now()", expression.Options{Names: []string{"event", "now"}})
	for _, problem := range problems {
		fmt.Printf("%d:%d %s\n", problem.Line, problem.Column, problem.Message)
	}
	// Output:
	// 25 <nil>
	// 1:1 unknown name "evnt", did you mean "event"?
	// 1:14 now() would read the clock: write now, the time of the trigger
}
