package engine

import (
	"cmp"

	"go.uber.org/zap"

	"edda"
)

// maxUnheard bounds the types of events that are logged because no saga hears them.
const maxUnheard = 1000

// reportUnheard logs an event's type once if no saga hears it, because its name may be a typo. Only
// the loop calls it.
func (e *Engine) reportUnheard(ev *edda.Event) {
	name := cmp.Or(ev.FullType, ev.AggregateType+"."+ev.Type)
	if ev.Kind != edda.KindEvent || e.unheard[name] || len(e.unheard) >= maxUnheard {
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
	e.log.Log(e.opts.UnheardLevel, "no saga hears this type of event", fields...)
}
