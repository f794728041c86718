package jsonvalue_test

import (
	"fmt"

	"edda/internal/jsonvalue"
)

// Integers stay integers, whatever their size.
func ExampleDecode() {
	v, err := jsonvalue.Decode([]byte(`{"amount": 9007199254740993, "rate": 2.0}`))
	fmt.Println(v, err)
	v, err = jsonvalue.Decode([]byte(`99999999999999999999`))
	fmt.Println(v, err)
	// Output:
	// map[amount:9007199254740993 rate:2] <nil>
	// 99999999999999999999 <nil>
}
