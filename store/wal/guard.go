package wal

import (
	"fmt"
	"runtime/debug"
)

// DamageError says that a file does not hold what bbolt wrote: a page led out of the
// file, or to what is no page.
type DamageError struct {
	Path  string
	Found any    // what bbolt ended with
	Stack []byte // where
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged (%v): restore a backup", e.Path, e.Found)
}

// Guard turns what bbolt does on meeting a damaged page, a panic or a look beyond the
// end of the file, into a [DamageError]. Without it the look ends the process. What fn
// had open stays open.
func Guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = &DamageError{Path: path, Found: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}
