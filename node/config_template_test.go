package node

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// written loads a configuration file of the working directory.
func written(t *testing.T, text string) Config {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("edda.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Sources{File: "edda.yaml"})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

func TestTheTemplateHasEveryKeyWithItsDefault(t *testing.T) {
	template, err := Template("manifests", "more")
	if err != nil {
		t.Fatal(err)
	}
	text := string(template)
	plain, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	plain.Manifests = []string{"manifests", "more"}
	want, err := plain.YAML()
	if err != nil {
		t.Fatal(err)
	}
	_, keysOnly, _ := strings.Cut(strings.NewReplacer("\n# A comment", "", "\n# Relative", "").Replace(text), "\n")
	open := regexp.MustCompile(`(?m)^# `).ReplaceAllString(keysOnly, "")
	for name, file := range map[string]string{"as it is": text, "without its comments": open} {
		got, err := written(t, file).YAML()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s it is not the default:\n%s", name, diff)
		}
	}
	if n := len(regexp.MustCompile(`(?m) # \S`).FindAllString(open, -1)); n != len(keys()) {
		t.Errorf("%d keys are explained, and there are %d", n, len(keys()))
	}
	for line := range strings.Lines(text) {
		if len(line) > 121 {
			t.Errorf("a line has %d characters: %s", len(line), line)
		}
	}
}

func TestEveryKeyOfTheTemplateCanBeRead(t *testing.T) {
	template, err := Template("manifests")
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	var path []string
	for line := range strings.Lines(string(template)) {
		m := regexp.MustCompile(`^(?:# )?( *)([a-z0-9_]+):(.*)`).FindStringSubmatch(line)
		if m == nil || strings.HasPrefix(line, "# The configuration") {
			continue
		}
		path = append(path[:len(m[1])/2], m[2])
		if strings.TrimSpace(m[3]) != "" {
			there = append(there, strings.Join(path, "."))
		}
	}
	if want := keys(); !reflect.DeepEqual(want, there) {
		t.Errorf("the template has other keys than the configuration:\n%s", cmp.Diff(want, there))
	}
}
