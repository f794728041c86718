package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sourceNames writes files into the working folder of the test, and returns the names of what Sources reads.
func sourceNames(t *testing.T, files map[string]string, most int, paths ...string) ([]string, error) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "work", "here")
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for i, p := range paths {
		paths[i] = strings.ReplaceAll(p, "ROOT", root)
	}
	all, err := Sources(most, paths...)
	var names []string
	for _, s := range all {
		names = append(names, s.Name+"="+string(s.Content))
	}
	return names, err
}

func TestSourcesHaveTheNamesThatWereGiven(t *testing.T) {
	files := map[string]string{
		"shop/order.yaml": "a", "shop/deep/trip.yml": "b", "shop/api.proto": "c", "shop/deep/api.pb": "d", "shop/edda.yaml": "config",
		"shop/.hidden.yaml": "x", "shop/readme.md": "x", "shop/empty.yaml": "", "other/one.yaml": "e", "../up/two.yaml": "f",
	}
	for name, tt := range map[string]struct {
		paths []string
		want  []string
	}{
		"a folder":            {[]string{"shop"}, []string{"shop/deep/trip.yml=b", "shop/order.yaml=a", "shop/api.proto=c", "shop/deep/api.pb=d"}},
		"the working folder":  {[]string{"."}, []string{"other/one.yaml=e", "shop/deep/trip.yml=b", "shop/order.yaml=a", "shop/api.proto=c", "shop/deep/api.pb=d"}},
		"files, one twice":    {[]string{"shop/order.yaml", "./other/one.yaml", "shop/order.yaml"}, []string{"shop/order.yaml=a", "other/one.yaml=e"}},
		"beside":              {[]string{"../up"}, []string{"up/two.yaml=f"}},
		"an absolute path":    {[]string{"ROOT/other"}, []string{"other/one.yaml=e"}},
		"a file by its whole": {[]string{"ROOT/other/one.yaml"}, []string{"one.yaml=e"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := sourceNames(t, files, 100, tt.paths...)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestSourcesThatCannotBeSentAreRefused(t *testing.T) {
	files := map[string]string{"a/one.yaml": "a", "b/one.yaml": "b", "empty/readme.md": ""}
	for name, tt := range map[string]struct {
		most  int
		paths []string
		want  string
	}{
		"too many bytes":         {1, []string{"a", "b"}, "more than 1 bytes together"},
		"a file alone":           {0, []string{"a"}, "more than 0 bytes together"},
		"two of one name":        {100, []string{"ROOT/a/one.yaml", "ROOT/b/one.yaml"}, "two files are named one.yaml"},
		"a folder without any":   {100, []string{"empty"}, "holds no *.yaml"},
		"a file of another kind": {100, []string{"empty/readme.md"}, "file empty/readme.md: want manifests"},
		"a path that is no one":  {100, []string{"none"}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := sourceNames(t, files, tt.most, tt.paths...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestSourcesAreWrittenBelowTheirFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := WriteSources(dir, []Source{{"shop/order.yaml", []byte("a")}, {"b.pb", []byte{0, 255}}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "shop", "order.yaml"))
	if err != nil || string(text) != "a" {
		t.Errorf("%q, %v", text, err)
	}
	for _, name := range []string{"../out.yaml", "/etc/out.yaml", "a/../../out.yaml", `a\..\out.yaml`, ""} {
		if err := WriteSources(dir, []Source{{name, nil}}); err == nil {
			t.Errorf("%q was written", name)
		}
	}
}
