package saga

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"edda/manifests"
)

// drawn draws a manifest as lines, "from -label-> to".
func drawn(t *testing.T, source string) []string {
	t.Helper()
	file, problems := manifests.Parse("t.yaml", []byte(source))
	if problems.Failed() {
		t.Fatal(problems)
	}
	var out []string
	for _, e := range NewGraph(file.Sagas[0]).Edges {
		arrow := "->"
		if e.Undo {
			arrow = "~>"
		}
		out = append(out, strings.Join(strings.Fields(e.From+" "+e.Label+" "+arrow+" "+e.To), " "))
	}
	return out
}

func TestGraph(t *testing.T) {
	tests := []struct{ name, on, want string }{
		{"an event leads to its actions", `A: {start: true, do: [{effect: ship}, {event: Seen}]}`,
			"on:A -> step:ship | on:A -> emit:event Seen"},
		{"a step leads to its handlers", `A: {start: true, do: [{effect: ship}]}
  ship.ok: {do: [{done: 1}]}
  ship.failed: {do: [{fail: lost}]}`,
			"on:A -> step:ship | step:ship ok -> end:done | step:ship failed -> end:fail lost"},
		{"a seq goes on when a step is ok", `A: {start: true, do: [{seq: [{effect: a}, {command: X.Y, to: =key}, {effect: b}, {done: 1}]}]}`,
			"on:A -> step:a | step:a ok -> emit:command X.Y | step:a ok -> step:b | step:b ok -> end:done"},
		{"undo is drawn beside", `A: {start: true, do: [{effect: a, undo: {effect: b}}]}`,
			"on:A -> step:a | step:a undo ~> undo:effect b"},
		{"conditions are labels", `A: {start: true, when: event.x > 1, cases: [{when: event.y, do: [{event: P}]}, {do: [{event: Q, if: event.z}]}]}`,
			"on:A [event.x > 1] [event.y] -> emit:event P | on:A [event.x > 1] [event.z] -> emit:event Q"},
		{"timers fire", `A: {start: true, do: [{timer: pay_by, after: 1m}]}
  timer.pay_by: {do: [{fail: late}]}`,
			"on:A -> timer:pay_by | timer:pay_by fires -> end:fail late"},
		{"both lead to a join", `A & B: {start: true, do: [{done: 1}]}`,
			"on:A -> join:A & B | on:B -> join:A & B | join:A & B -> end:done"},
		{"a group has members", `A: {start: true, do: [{each: event.items, id: g, do: [{effect: hold}]}]}
  g.all: {do: [{done: 1}]}`,
			"on:A -> step:g | step:g item -> step:hold | step:g all -> end:done"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(drawn(t, "saga: s\nkey: event.id\non:\n  "+tt.on+"\n"), " | ")
			if got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// For any manifest, an edge joins existing nodes, and each node has an edge.
func TestGraphsOfTheExamplesAreConnected(t *testing.T) {
	files, err := fs.Glob(manifests.Examples(), "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		source, err := fs.ReadFile(manifests.Examples(), name)
		if err != nil {
			t.Fatal(err)
		}
		file, _ := manifests.Parse(name, source)
		for _, m := range file.Sagas {
			g := NewGraph(m)
			used := map[string]bool{}
			for _, e := range g.Edges {
				used[e.From], used[e.To] = true, true
			}
			for _, n := range g.Nodes {
				if !used[n.ID] && n.Kind != NodeTrigger && n.Kind != NodeTimer {
					t.Errorf("%s: %s leads nowhere", name, n.ID)
				}
				delete(used, n.ID)
			}
			for id := range used {
				if !slices.ContainsFunc(g.Nodes, func(n GraphNode) bool { return n.ID == id }) {
					t.Errorf("%s: %s is not a node", name, id)
				}
			}
		}
	}
}
