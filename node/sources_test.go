package node

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelativePathsBeginAtTheFolderOfTheirFile(t *testing.T) {
	t.Chdir(t.TempDir())
	file := filepath.Join("shop", "edda.yaml")
	if err := os.Mkdir("shop", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		environ    []string
		want       []string // data, tokens.file and the manifests
	}{
		{"of a file", "{data: store, manifests: [sagas, ../more, /abs], tokens: {file: tokens.yaml}}", nil,
			[]string{"shop/store", "shop/tokens.yaml", "shop/sagas", "more", "/abs"}},
		{"a text is a list", "{data: /srv/edda, manifests: 'sagas,more'}", nil, []string{"/srv/edda", "", "shop/sagas", "shop/more"}},
		{"without a value", "{data: , manifests: [], tokens: {file: ''}}", nil, []string{Defaults().Data, ""}},
		{"of variables", "{data: store, manifests: [sagas]}", []string{"EDDA_DATA=here", "EDDA_MANIFESTS=a,b"},
			[]string{"here", "", "a", "b"}},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(Sources{File: file, Environ: c.environ})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, append([]string{got.Data, got.Tokens.File}, got.Manifests...)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestEveryKeyOfAFileOrFolderIsAPath(t *testing.T) {
	path := regexp.MustCompile(`(^|[^.])\b(files?|folders?)\b`)
	n := 0
	var look func(reflect.Type)
	look = func(s reflect.Type) {
		for f := range s.Fields() {
			if f.Type.Kind() == reflect.Struct {
				look(f.Type)
				continue
			}
			if text := f.Type.Kind() == reflect.String || f.Type.Kind() == reflect.Slice; text && path.MatchString(f.Tag.Get("doc")) {
				if n++; f.Tag.Get("path") == "" {
					t.Errorf("%s is a %s, and has no tag path", f.Tag.Get("koanf"), f.Tag.Get("doc"))
				}
			}
		}
	}
	look(reflect.TypeFor[Config]())
	if n < 15 {
		t.Errorf("%d keys are files or folders", n)
	}
}
