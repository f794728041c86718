package edda_test

import (
	"errors"
	"fmt"

	"edda"
)

// An error says what to do about it, and still what happened.
func ExampleClassify() {
	err := edda.Classify(edda.Temporary, "call pay: %w", errors.New("connection refused"))
	fmt.Println(err, errors.Is(err, edda.Temporary))
	// Output: call pay: connection refused true
}
