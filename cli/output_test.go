package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAFlagStandsForATextAFileOrTheInput(t *testing.T) {
	file, empty := filepath.Join(t.TempDir(), "script"), filepath.Join(t.TempDir(), "empty")
	write(t, file, "of a file\n")
	write(t, empty, " \n")
	for name, test := range map[string]struct{ from, in, text, mistake string }{
		"itself":           {"print(1)", "", "print(1)", ""},
		"nothing":          {"", "", "", ""},
		"a file":           {"@" + file, "", "of a file\n", ""},
		"the input":        {"-", "of the input", "of the input", ""},
		"an empty file":    {"@" + empty, "", " \n", "--script @" + empty + ": it is empty"},
		"an empty input":   {"-", "", "", "--script -: it is empty"},
		"no file":          {"@" + empty + "s", "", "", "--script: open " + empty + "s: no such file or directory"},
		"the input's sign": {"-", "-", "-", ""},
	} {
		t.Run(name, func(t *testing.T) {
			term := &terminal{in: strings.NewReader(test.in)}
			text, err := term.content("--script", test.from)
			if test.mistake != "" {
				if err == nil || err.Error() != test.mistake {
					t.Errorf("got %q, %v", text, err)
				}
			} else if err != nil || text != test.text {
				t.Errorf("got %q, %v", text, err)
			}
			term.in = strings.NewReader(test.in) // an empty payload is one
			if text, err := term.text("--data", test.from); text != test.text || (err != nil) != strings.HasPrefix(test.mistake, "--script: open") {
				t.Errorf("as a payload %q, %v", text, err)
			}
		})
	}
}
