package main

import (
	"strings"
	"testing"
	"time"
)

func TestAnOrderHas305Bytes(t *testing.T) {
	for _, id := range []string{"W1fullload-0000001", "x", strings.Repeat("k", 40)} {
		if got := len(order(id, false)); got != orderBytes {
			t.Errorf("%d bytes for %s", got, id)
		}
	}
}

func TestABookThatDiffersIsNoticed(t *testing.T) {
	write := func(calls ...string) Book {
		e := &Effects{books: map[string]Book{}}
		for _, c := range calls {
			name, key, _ := strings.Cut(c, " ")
			e.write(name, key)
		}
		return e.books["p"]
	}
	if err := write("ship p-1", "ship p-2").agrees(2, "ship"); err != nil {
		t.Error(err)
	}
	for what, b := range map[string]Book{
		"one is missing":   write("ship p-1"),
		"one came again":   write("ship p-1", "ship p-2", "ship p-2"),
		"one for another":  write("ship p-1", "ship p-1"),
		"nothing at all":   write(),
		"another effect":   write("ship p-1", "ship p-2", "refund p-1"),
		"of another phase": write("ship p-1", "ship q-2"),
	} {
		if err := b.agrees(2, "ship"); err == nil {
			t.Errorf("%s: not noticed", what)
		}
	}
}

func TestALossyServerForgets(t *testing.T) {
	e := &Effects{lose: 3, books: map[string]Book{}}
	for _, key := range []string{"p-1", "p-2", "p-3", "p-4"} {
		e.write("ship", key)
	}
	if got := e.books["p"]["ship"].Keys; got != 3 {
		t.Errorf("%d of 4 written down", got)
	}
}

func TestAFactTellsWhenItsTimerWasDue(t *testing.T) {
	at, err := due([]byte(`{"payload":{"due":"2026-01-02T03:04:05.006Z"}}`))
	if err != nil || !at.Equal(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)) {
		t.Errorf("%v, %v", at, err)
	}
	if _, err := due([]byte(`{"payload":{}}`)); err == nil {
		t.Error("one that does not is taken")
	}
}

func TestWorkloadsAreKnown(t *testing.T) {
	if err := (Options{Workloads: []string{"W9"}}).Check(); err == nil || !strings.Contains(err.Error(), "W1, W2, W3, W4, W5, W6, W7") {
		t.Errorf("%v", err)
	}
	o, err := Options{Short: true, Sizes: Sizes{Timers: 7}}.withDefaults()
	if err != nil || o.Timers != 7 || o.Events != short().Events {
		t.Errorf("%+v, %v", o.Sizes, err)
	}
	if _, err := (Options{Sizes: Sizes{Rows: -1}}).withDefaults(); err == nil {
		t.Error("a size below nothing is taken")
	}
}

func TestCommandsAreCountedForEachKey(t *testing.T) {
	if err := onceEach(map[string]uint64{"a": 1, "b": 1}, 2); err != nil {
		t.Error(err)
	}
	for what, subjects := range map[string]map[string]uint64{"one is missing": {"a": 1}, "one came twice": {"a": 1, "b": 2}, "one too many": {"a": 1, "b": 1, "c": 1}} {
		if err := onceEach(subjects, 2); err == nil {
			t.Errorf("%s: not noticed", what)
		}
	}
}
