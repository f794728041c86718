//go:build !linux

package store

// Mapped is not known here.
func Mapped() int { return 0 }

func unmap(_, _ uintptr) {}
