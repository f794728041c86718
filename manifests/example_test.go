package manifests_test

import (
	"os"

	"edda/manifests"
)

// All problems of a file are reported at once, each with its position.
func ExampleProblems_Print() {
	_, problems := manifests.Parse("order.yaml", []byte(`saga: order
kye: event.order_id
on:
  OrderPlaced: {start: true, do: [{timr: pay_by, after: 30m}]}
`))
	problems.Print(os.Stdout, false)
	// Output:
	// order.yaml:2:1: error: a saga has no key "kye"; did you mean "key"?
	//   kye: event.order_id
	//   ^
	// order.yaml:4:36: error: there is no action "timr"; did you mean "timer"?
	//     OrderPlaced: {start: true, do: [{timr: pay_by, after: 30m}]}
	//                                      ^
	// 2 errors
}
