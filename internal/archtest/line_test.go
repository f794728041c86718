package archtest

import (
	"go/token"
	"os"
	"strings"
	"testing"
)

func TestTheTablesOfTheLineMatchTheCode(t *testing.T) {
	page, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lineNames(string(page))); n < 30 {
		t.Fatalf("the tables of the line have %d names", n)
	}
	for _, complaint := range lineComplaints(files, string(page)) {
		t.Error(complaint)
	}
}

func TestEachRuleOfTheLineComplains(t *testing.T) {
	const page = "# A\n\n## Goroutines and queues\n\n| goroutine | by |\n|---|---|\n| loop | `engine Engine.Run` |\n| inbox | `engine inboxSize` |\n\n## More\n\n| a | `engine other` |\n"
	const ground = "package engine\nconst inboxSize = 16\nvar c = make(chan int, inboxSize)\ntype Engine struct{}\nfunc (e *Engine) Run() { go e.loop() }\nfunc (e *Engine) loop() {}\n"
	for _, tt := range []struct{ name, source, want string }{
		{"all is listed", ground, ""},
		{"one place", ground + "var d = make(chan int, 1)\n", ""},
		{"a goroutine", ground + "func f() { go f() }\n", "engine f starts a goroutine"},
		{"in a group", ground + "type g struct{}\nfunc (g) Go(func()) {}\nfunc f() { g{}.Go(f) }\n", "engine f starts a goroutine"},
		{"a number", ground + "var d = make(chan int, 64)\n", "a channel whose bound"},
		{"another name", ground + "const depth = 2\nvar d = make(chan int, depth)\n", "a channel whose bound"},
		{"a name that does not exist", strings.ReplaceAll(ground, "inboxSize", "depth"), "names engine inboxSize, which does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parse(token.NewFileSet(), "engine/a.go", []byte(tt.source))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(lineComplaints([]file{f}, page), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
