package edda_test

import (
	"errors"
	"fmt"

	"edda"
)

// Integers stay integers, whatever their size.
func ExampleDecode() {
	v, err := edda.Decode([]byte(`{"amount": 9007199254740993, "rate": 2.0}`))
	fmt.Println(v, err)
	v, err = edda.Decode([]byte(`99999999999999999999`))
	fmt.Println(v, err)
	// Output:
	// map[amount:9007199254740993 rate:2] <nil>
	// 99999999999999999999 <nil>
}

// An error says what to do about it, and still what happened.
func ExampleClassify() {
	err := edda.Classify(edda.Temporary, "call pay: %w", errors.New("connection refused"))
	fmt.Println(err, errors.Is(err, edda.Temporary))
	// Output: call pay: connection refused true
}
