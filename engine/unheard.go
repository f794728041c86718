package engine

import (
	"go.uber.org/zap"

	"edda"
)

const (
	// maxUnheard bounds the types of events that are logged because no saga hears them.
	maxUnheard = 1000
	// maxUnheardType bounds the length of such a type in the log.
	maxUnheardType = 200
)

// reportUnheard logs an event's type once if no saga hears it, because its name may be a typo. Only
// the loop calls it.
func (e *Engine) reportUnheard(ev *edda.Event) {
	if ev.Kind != edda.KindEvent || len(e.unheard) >= maxUnheard {
		return
	}
	name := clip(ev.Name(), maxUnheardType)
	if e.unheard[name] {
		return
	}
	near, suspicious := e.sagas.Unheard(*ev)
	if !suspicious {
		return
	}
	e.unheard[name] = true
	fields := append(logFields(ev.Key, ev), zap.String("type", name))
	if near != "" {
		fields = append(fields, zap.String("did_you_mean", near))
	}
	if len(e.unheard) == maxUnheard {
		fields = append(fields, zap.String("note", "further types are not logged before a restart"))
	}
	e.log.Log(e.opts.UnheardLevel, "no saga hears this type of event", fields...)
}
