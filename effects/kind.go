package effects

import (
	"time"

	kindspec "edda/effects/spec"
	"edda/manifests"
)

// Kind describes a provider to the compiler of manifests.
type Kind struct {
	// Spec describes the provider's map, which is checked before anything runs. A map
	// without a description is not checked.
	Spec *kindspec.Fields
	// NoCheck says why an effect's check cannot ask over the provider; empty if it can.
	NoCheck string
	// Escape says, for a field of the provider's map, how a value is written
	// into its template, given the text before it.
	Escape map[string]func(before, value string) string
	// Raw says the same of a value that the manifest puts into raw(…), for the fields
	// where it may; Fits says, for a field that is filled in, what is wrong with it. A
	// value in raw(…) is an x there: the manifest answers for it.
	Raw  map[string]func(before, value string) string
	Fits map[string]func(text string) error
	// OK is the expression of an effect that has no ok: "true" when empty.
	OK string
	// Timeout of an effect that has none; the general one when zero.
	Timeout time.Duration
	// Once says that the provider itself sees to it that a command has its effect
	// once: a call whose outcome is unknown may be made again, also at_most_once.
	Once bool
}

// inspect checks a provider's map, which is nil where the parser has reported that it is none.
func (c *compiler) inspect(k Kind, config *manifests.Value, asks bool) {
	switch {
	case config == nil:
	case asks && k.NoCheck != "":
		c.errorf(config.Pos, k.NoCheck)
	case k.Spec != nil:
		s := kindspec.Checker{File: c.m.File, Asks: asks}
		s.Map(k.Spec, config)
		c.problems = append(c.problems, s.Problems...)
	}
}
