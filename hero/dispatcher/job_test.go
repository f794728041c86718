package dispatcher

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

// written returns the hash that Edda's client writes for a job.
func written(j Job) map[string]string {
	h, f := map[string]string{}, j.fields()
	for i := 0; i < len(f); i += 2 {
		h[f[i].(string)] = f[i+1].(string)
	}
	return h
}

func TestAJobIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	j := Job{ID: "a", CallerID: "c", WorkerID: "w", ContextID: "7", Script: "42", Timeout: 9, Retries: 300, Concurrent: true, LogPath: "x/y.log",
		EnvVars: map[string]string{"A": `"1"`, "ü": "\n"}, Prerequisites: []string{"p"}, Dependents: []string{"d", "e,f"}, Dependencies: []string{"q"},
		CreatedAt: at, UpdatedAt: at, Status: hero.JobDispatched}
	got, err := readJob("a", written(j))
	if err != nil || cmp.Diff(j, got) != "" {
		t.Fatal(err, cmp.Diff(j, got))
	}
	if empty := written(Job{ID: "a"}); empty["dependencies"] != "[]" || len(empty) != 12 {
		t.Errorf("an empty job is written as %v", empty)
	}
}

func TestForeignSpellingsAreRead(t *testing.T) {
	j, err := readJob("a", map[string]string{
		"id": "a", "status": `"Started"`, "concurrent": "1", "dependencies": " x, y ,", "prerequisites": "[1, \"y\"]", "dependents": "null",
		"env_vars": `{"N": 1, "B": true, "S": "s"}`, "created_at": "2026-01-02T03:04:05.000006+01:00", "updated_at": "2026-01-02T03:04:05", "timeout": " 5 ", "unknown": "kept",
	})
	testkit.Must(t, err)
	if j.Status != hero.JobStarted || !j.Concurrent || j.Timeout != 5 || j.CreatedAt.Hour() != 2 || j.UpdatedAt.Hour() != 3 || len(j.Dependents) != 0 {
		t.Errorf("%+v", j)
	}
	if diff := cmp.Diff([]string{"1", "x", "y"}, j.Waits()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"N": "1", "B": "true", "S": "s"}, j.EnvVars); diff != "" {
		t.Error(diff)
	}
	if j, err := readJob("b", map[string]string{"created_at": "1767323045", "status": "WaitingForPrerequisites"}); err != nil || j.Status != hero.JobDispatched || j.CreatedAt.Year() != 2026 {
		t.Errorf("%+v, %v", j, err)
	}
}

func TestABrokenFieldIsNamed(t *testing.T) {
	for field, value := range map[string]string{
		"id": "b", "timeout": "-1", "retries": "9999999999", "concurrent": "maybe", "env_vars": "[1]", "dependencies": "[", "prerequisites": `["a"`,
		"created_at": "yesterday", "status": "asleep", "attempts": "1.5",
	} {
		_, err := readJob("a", map[string]string{field: value + strings.Repeat(" ", 10)})
		var f *hero.FieldError
		if !errors.As(err, &f) || f.Key != "hero:job:a" || f.Field != field || !errors.Is(err, edda.Permanent) {
			t.Errorf("%s=%q: %v", field, value, err)
		}
	}
	_, err := readJob("a", map[string]string{"env_vars": strings.Repeat("x", 1<<20)})
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func FuzzReadJob(f *testing.F) {
	f.Add("status", "finished", "env_vars", `{"a":{}}`)
	f.Add("dependencies", `[null,[1]]`, "created_at", "99999999999999999999")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		j, err := readJob("x", map[string]string{a: b, c: d})
		if err == nil && j.Status == "" {
			t.Error("a job without a status")
		}
	})
}

func TestIDs(t *testing.T) {
	for id, ok := range map[string]bool{"": false, "a b": false, "a\n": false, "\xff": false, strings.Repeat("x", 201): false, "w:1/2": true, "ü": true} {
		if err := checkID("id", id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
	}
}
