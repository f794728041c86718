package engine

import (
	"strings"
	"testing"
	"time"

	"edda"
)

// TestSuspectsGoAlone writes a due input as d, a catch-up event as p and an event as e, suspects
// in upper case.
func TestSuspectsGoAlone(t *testing.T) {
	for _, tt := range []struct{ dues, past, events, want string }{
		{"dd", "pp", "ee", "ddppee"},
		{"Dd", "pp", "ee", "D"},
		{"dD", "pp", "ee", "dppee"},
		{"d", "Pp", "ee", "P"},
		{"d", "pP", "ee", "dpee"},
		{"d", "p", "Ee", "dp"},
		{"", "p", "Ee", "E"},
		{"", "", "eE", "e"},
	} {
		v, l := newLoop(&Engine{}, nil), newLaggard(SagaTenant{AllTenants, "s"})
		v.catchUp.laggards[l.SagaTenant] = l
		names := map[*item]string{}
		add := func(kinds string, to *[]*item) {
			for _, kind := range strings.Split(kinds, "") {
				it := &item{event: edda.Event{ID: kind}, alone: kind == strings.ToUpper(kind)}
				if strings.EqualFold(kind, "d") {
					it.due = &due{time: time.Time{}}
				}
				names[it] = kind
				*to = append(*to, it)
			}
		}
		add(tt.dues, &v.queue.dues)
		add(tt.past, &l.queue)
		add(tt.events, &v.queue.events)
		items, caughtUp := v.form()
		got := ""
		for _, it := range items {
			got += names[it]
		}
		if got != tt.want || caughtUp != strings.Count(strings.ToLower(got), "p") {
			t.Errorf("%s %s %s: batch %s with %d catch-up events, want %s", tt.dues, tt.past, tt.events, got, caughtUp, tt.want)
		}
	}
}
