package wal

import (
	"fmt"
	"runtime/debug"
)

// DamageError says that a file is not as bbolt wrote it: a page led out of the file, or to what is
// no page.
type DamageError struct {
	Path  string
	Found any    // the panic of bbolt
	Stack []byte // of the panic
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged (%v): restore a backup", e.Path, e.Found)
}

// Guard turns the panic of bbolt on a damaged page, or its fault beyond the end of the file, into a
// [DamageError]. Without it the fault ends the process. It does not close what fn has opened.
func Guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = &DamageError{Path: path, Found: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}
