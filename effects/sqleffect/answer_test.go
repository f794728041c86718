package sqleffect

import (
	"errors"

	"edda"
	"edda/effects"
)

func isPermanent(err error) bool { return errors.Is(err, edda.Permanent) }
func isNotSent(err error) bool   { return errors.Is(err, effects.ErrNotSent) }
