package cli

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"edda/server"
	"edda/store"
)

// TestATimeAheadOfTheTerminalsClockIsNoNegativeAge: servers' clocks differ, and one that was
// set back leaves instances in the future.
func TestATimeAheadOfTheTerminalsClockIsNoNegativeAge(t *testing.T) {
	now := time.Now()
	ahead := now.Add(2 * time.Hour)
	for want, at := range map[string]time.Time{
		"": {}, "0s ago": now.Add(20 * time.Second), clock(ahead): ahead, "5m ago": now.Add(-5*time.Minute - time.Second), "47h ago": now.Add(-47*time.Hour - time.Minute),
	} {
		if got := ago(at); got != want {
			t.Errorf("%s is %q, want %q", at.Sub(now), got, want)
		}
	}
}

// TestALongReasonHidesNothingInTheList: it is what a saga's author makes of it.
func TestALongReasonHidesNothingInTheList(t *testing.T) {
	var out bytes.Buffer
	in := server.InstanceSummary{Saga: "order", Key: "O1", Status: "failed", VersionName: "3", Updated: time.Now().Add(-time.Hour - time.Minute), Reason: strings.Repeat("because ", 1000)}
	if err := instances().print(&terminal{out: &out}, outputTable, nil, []server.InstanceSummary{in}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "order  O1   failed  3        1h ago   because because") || len(lines[1]) > 110 {
		t.Errorf("%s", out.String())
	}
}

// TestAListWithoutIDsRefusesToPrintThem: it printed a table, which a script took for ids.
func TestAListWithoutIDsRefusesToPrintThem(t *testing.T) {
	var out bytes.Buffer
	err := audits().print(&terminal{out: &out}, outputIDs, nil, []store.Audit{{By: "ann", Verb: "drop"}})
	if _, usage := errors.AsType[*usageError](err); !usage || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestEveryFieldOfAnInstanceHasAColumn fails where the server sends a field that the table does not
// show. Add a column, or list the field as one that only -o json has.
func TestEveryFieldOfAnInstanceHasAColumn(t *testing.T) {
	onlyJSON := []string{"Tenant", "Version", "Generation", "Started", "Ended"}
	cells := func(i server.InstanceSummary) (out []string) {
		for _, c := range instances().columns {
			out = append(out, c.of(i))
		}
		return out
	}
	fields := reflect.TypeFor[server.InstanceSummary]()
	for n := range fields.NumField() {
		var i server.InstanceSummary
		switch f := reflect.ValueOf(&i).Elem().Field(n); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int:
			f.SetInt(7)
		default:
			f.Set(reflect.ValueOf(time.Now()))
		}
		name := fields.Field(n).Name
		if shown := !slices.Equal(cells(i), cells(server.InstanceSummary{})); shown == slices.Contains(onlyJSON, name) {
			t.Errorf("%s: shown %t, and listed as one that only -o json has: %t", name, shown, !shown)
		}
	}
}
