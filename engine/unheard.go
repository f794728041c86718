package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
)

const (
	// maxUnheard bounds the types of events that are counted because no saga hears them.
	maxUnheard = 1000
	// maxUnheardType bounds the length of such a type in the log and in the counts.
	maxUnheardType = 200
)

// Unheard is a type of events that no saga hears. Its name may be a typo.
type Unheard struct {
	Type   string    `json:"type"`
	Stream string    `json:"stream" doc:"where the last one came from"`
	Count  uint64    `json:"count" doc:"since the start of the process"`
	Last   time.Time `json:"last" doc:"when the last one was stored"`
	// Near is the most similar trigger.
	Near string `json:"did_you_mean,omitempty"`
}

// unheard counts the types of events that no saga hears. The loop writes it; other goroutines read.
type unheard struct {
	mu    sync.Mutex // guards types
	types map[string]*Unheard
}

// Unheard lists the types of events that no saga hears, the most frequent first.
func (e *Engine) Unheard() []Unheard {
	e.unheard.mu.Lock()
	defer e.unheard.mu.Unlock()
	out := make([]Unheard, 0, len(e.unheard.types))
	for _, u := range e.unheard.types {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b Unheard) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Type, b.Type))
	})
	return out
}

// reportUnheard counts an event's type if no saga hears it, and logs it once. Only the loop calls it.
func (e *Engine) reportUnheard(ev *edda.Event) {
	if ev.Kind != edda.KindEvent || ev.Malformed != "" {
		return
	}
	name := clip(ev.Name(), maxUnheardType)
	e.unheard.mu.Lock()
	defer e.unheard.mu.Unlock()
	is := e.unheard.types[name]
	if is == nil {
		if is = e.newUnheard(ev, name); is == nil {
			return
		}
	}
	is.Count++
	is.Stream, is.Last = ev.Stream, ev.StoredAt()
}

// newUnheard logs a type and begins to count it; nil if its name is no typo, or if there are too many.
func (e *Engine) newUnheard(ev *edda.Event, name string) *Unheard {
	if len(e.unheard.types) >= maxUnheard {
		return nil
	}
	near, suspicious := e.sagas.Unheard(*ev)
	if !suspicious {
		return nil
	}
	is := &Unheard{Type: name, Near: near}
	e.unheard.types[name] = is
	fields := append(logFields(ev.Key, ev), zap.String("type", name))
	if near != "" {
		fields = append(fields, zap.String("did_you_mean", near))
	}
	if len(e.unheard.types) == maxUnheard {
		fields = append(fields, zap.String("note", "further types are neither logged nor counted before a restart"))
	}
	e.log.Log(e.opts.UnheardLevel, "no saga hears this type of event", fields...)
	return is
}
