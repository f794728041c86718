package grpceffect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"edda"
	"edda/effects"
)

// inFolder calls the bank as a manifest of that folder would.
func (b *bank) inFolder(p *Provider, folder string, extra map[string]any) (effects.Response, error) {
	return p.Call(b.t.Context(), effects.Call{Key: "k", Folder: folder, Config: b.config(extra)})
}

func writeSet(t *testing.T, path string, set *descriptorpb.FileDescriptorSet) {
	t.Helper()
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	writeProto(t, path, string(raw))
}

// split is the bank's language in two files.
func split(t *testing.T, folder string) {
	t.Helper()
	before, after, _ := strings.Cut(shopProto, "message ChargeRequest {")
	charge, rest, _ := strings.Cut(after, "\n}\n")
	head := strings.Replace(before, "package shop.v1;", "package shop.v1;\nimport \"common/charge.proto\";", 1)
	writeProto(t, filepath.Join(folder, "shop", "v1", "pay.proto"), head+rest[strings.Index(rest, "message Receipt"):])
	writeProto(t, filepath.Join(folder, "common", "charge.proto"), "syntax = \"proto3\";\npackage shop.v1;\nmessage ChargeRequest {"+charge+"\n}\n"+rest[:strings.Index(rest, "message Receipt")])
}

func TestDescriptionsInFiles(t *testing.T) {
	b, p := openBank(t, undescribed), local(t)
	folder := t.TempDir()
	writeProto(t, filepath.Join(folder, "shop.proto"), shopProto)
	writeSet(t, filepath.Join(folder, "all.binpb"), descriptorSetOf(compileProto(t, shopProto)))
	writeSet(t, filepath.Join(folder, "plain.binpb"), descriptorSetOf(compileProto(t, shopProto), "shop.proto"))
	split(t, folder)
	for _, tt := range []struct {
		name  string
		extra map[string]any
	}{
		{"beside the manifest", map[string]any{"proto": "shop.proto"}},
		{"absolute", map[string]any{"proto": filepath.Join(folder, "shop.proto")}},
		{"in an import path", map[string]any{"proto": "shop/v1/pay.proto", "import_paths": []any{"."}}},
		{"imports elsewhere", map[string]any{"proto": "shop/v1/pay.proto", "import_paths": []any{folder + "/nowhere", folder}}},
		{"a descriptor set", map[string]any{"descriptor_set": "all.binpb"}},
		{"a descriptor set without protobuf's own files", map[string]any{"descriptor_set": "plain.binpb"}},
	} {
		r, err := b.inFolder(p, folder, tt.extra)
		if err != nil || r.Status != 0 || r.Body.(map[string]any)["amountCents"] != 9007199254740993 {
			t.Errorf("%s: %+v %v", tt.name, r, err)
		}
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	b, p := openBank(t, undescribed), local(t)
	folder := t.TempDir()
	split(t, folder)
	writeProto(t, filepath.Join(folder, "broken.proto"), "syntax = \"proto3\";\nmessage {")
	writeProto(t, filepath.Join(folder, "out.proto"), "syntax = \"proto3\";\nimport \"../../etc/passwd\";")
	writeProto(t, filepath.Join(folder, "large.proto"), strings.Repeat("/", maxFile+1))
	writeProto(t, filepath.Join(folder, "deep.proto"), "syntax = \"proto3\";\n"+strings.Repeat("message M {", 300)+strings.Repeat("}", 300))
	writeProto(t, filepath.Join(folder, "text.binpb"), "hello")
	writeProto(t, filepath.Join(folder, "empty.binpb"), "")
	alone := descriptorSetOf(compileProto(t, shopProto), "shop.proto")
	alone.File[0].Dependency = append(alone.File[0].Dependency, "common/charge.proto")
	writeSet(t, filepath.Join(folder, "alone.binpb"), alone)
	if err := syscall.Mkfifo(filepath.Join(folder, "pipe.proto"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		extra     map[string]any
		permanent bool
		want      string
	}{
		{map[string]any{"proto": "broken.proto"}, true, "broken.proto:2:9"},
		{map[string]any{"proto": "out.proto"}, true, "below an import path"},
		{map[string]any{"proto": "large.proto"}, true, "16 MiB"},
		{map[string]any{"proto": "deep.proto"}, true, ""},
		{map[string]any{"proto": "pipe.proto"}, true, "is no file"},
		{map[string]any{"proto": "nobody.proto"}, false, "nobody.proto"},
		{map[string]any{"proto": "shop/v1/pay.proto"}, false, "common/charge.proto"},
		{map[string]any{"descriptor_set": "text.binpb"}, true, "--include_imports"},
		{map[string]any{"descriptor_set": "empty.binpb"}, true, "--include_imports"},
		{map[string]any{"descriptor_set": "alone.binpb"}, true, "--include_imports"},
		{map[string]any{"descriptor_set": "nobody.binpb"}, false, "no such file"},
		{map[string]any{"descriptor_set": "a", "proto": "b"}, true, "exclude each other"},
		{map[string]any{"proto": "b", "import_paths": "a"}, true, "import_paths is no list"},
	} {
		_, err := b.inFolder(p, folder, tt.extra)
		if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) != tt.permanent || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.extra, err, tt.want)
		}
	}
}

// TestFileThatIsWrittenAnew is read again, but not one that is half written.
func TestFileThatIsWrittenAnew(t *testing.T) {
	b, c := openBank(t, undescribed), &clock{}
	p, folder := local(t).with(c), t.TempDir()
	path := writeProto(t, filepath.Join(folder, "shop.proto"), shopProto)
	extra := map[string]any{"proto": "shop.proto", "message": map[string]any{"colour": "red"}}
	if _, err := b.inFolder(p, folder, extra); !errors.Is(err, edda.Permanent) {
		t.Fatal(err)
	}
	b.describe(newer)
	writeProto(t, path, newer[:len(newer)/2])
	c.advance(readAgain)
	if _, err := b.inFolder(p, folder, map[string]any{"proto": "shop.proto"}); err != nil {
		t.Errorf("what was known is lost: %v", err)
	}
	writeProto(t, path, newer)
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	c.advance(readAgain)
	if _, err := b.inFolder(p, folder, extra); err != nil {
		t.Error(err)
	}
}

// TestFileWithOtherNumbers: a message that fits as before goes out as the file
// now says.
func TestFileWithOtherNumbers(t *testing.T) {
	b, c := openBank(t, undescribed), &clock{}
	p, folder := local(t).with(c), t.TempDir()
	path := writeProto(t, filepath.Join(folder, "shop.proto"), shopProto)
	for _, text := range []string{shopProto, strings.Replace(shopProto, "string order = 1;", "string order = 100;", 1)} {
		b.describe(text)
		writeProto(t, path, text)
		c.advance(readAgain)
		if _, err := b.inFolder(p, folder, map[string]any{"proto": "shop.proto"}); err != nil {
			t.Fatal(err)
		}
		if got := b.asked.Get(b.asked.Descriptor().Fields().ByName("order")).String(); got != "o1" {
			t.Errorf("the bank saw order %q", got)
		}
	}
}
