package changelog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// paged is a bbolt file with a bucket of some rows, and who reads its pages.
func paged(t *testing.T, rows map[string][]byte) (raw *bolt.DB, pages *pageReader) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	raw, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, PageSize: 1024, InitialMmapSize: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	if err := raw.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("rows"))
		if err != nil {
			return err
		}
		for k, v := range rows {
			if err := b.Put([]byte(k), v); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return raw, newPageReader(f, raw.Info().PageSize)
}

// TestWhatIsReadOfAPageIsWhatBboltSays: keys of any bytes and lengths, in trees of one
// page to three of them above each other, found and not found.
func TestWhatIsReadOfAPageIsWhatBboltSays(t *testing.T) {
	read, left := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		rows := map[string][]byte{}
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		long := rapid.SampledFrom([]int{8, 60, 400, 3000, 40_000}).Draw(r, "long") // of the last some are left to bbolt
		name := func() string { return fmt.Sprintf("%0*x", 1+rnd.IntN(40), rnd.IntN(1<<12)) }
		for range min(rapid.SampledFrom([]int{1, 20, 400, 2000}).Draw(r, "rows"), 4_000_000/long) {
			rows[name()] = bytes.Repeat([]byte{byte(rnd.IntN(256))}, rnd.IntN(long))
		}
		raw, pages := paged(t, rows)
		if err := raw.View(func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte("rows"))
			if b.Root() == 0 {
				return nil
			}
			keys := []string{"", "\x00", "zzz", "\xff\xff"}
			for k := range rows {
				keys = append(keys, k, k+"\x00", name())
			}
			values := map[string][]byte{}
			for _, k := range keys {
				got, ok := pages.get(uint64(b.Root()), []byte(k))
				if !ok {
					if left++; long <= 3000 {
						r.Fatalf("%q is left to bbolt", k)
					}
					continue
				}
				read++
				values[k] = got
			}
			for k, got := range values {
				if want := b.Get([]byte(k)); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
					r.Fatalf("%q is %d bytes, %t, and bbolt has %d, %t", k, len(got), got == nil, len(want), want == nil)
				}
			}
			return nil
		}); err != nil {
			r.Fatal(err)
		}
	})
	if read < left || left == 0 {
		t.Errorf("%d were read, and %d left to bbolt", read, left)
	}
}

// TestABucketIsLeftToBbolt, as is what lies on many pages.
func TestABucketIsLeftToBbolt(t *testing.T) {
	rows := map[string][]byte{"long": make([]byte, 50_000)}
	for i := range 40 {
		rows[fmt.Sprintf("a%02d", i)] = make([]byte, 100)
	}
	raw, pages := paged(t, rows)
	if err := raw.Update(func(tx *bolt.Tx) error {
		_, err := tx.Bucket([]byte("rows")).CreateBucket([]byte("a00b"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := raw.View(func(tx *bolt.Tx) error {
		root := uint64(tx.Bucket([]byte("rows")).Root())
		for key, want := range map[string]bool{"long": false, "a00b": false, "a00": true, "a00c": true} {
			if v, ok := pages.get(root, []byte(key)); ok != want {
				t.Errorf("%s is %d bytes, %t", key, len(v), ok)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedPageIsNoPanic: whatever its bytes are, and it ends.
func TestADamagedPageIsNoPanic(t *testing.T) {
	rows := map[string][]byte{}
	for i := range 400 {
		rows[fmt.Sprintf("a%03d", i)] = bytes.Repeat([]byte("x"), i%50)
	}
	raw, pages := paged(t, rows)
	var root uint64
	var end int64
	if err := raw.View(func(tx *bolt.Tx) error {
		end, root = tx.Size(), uint64(tx.Bucket([]byte("rows")).Root())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(raw.Path())
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[:end]
	size, rnd := raw.Info().PageSize, rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		bad := bytes.Clone(whole)
		at := int(root) * size
		if rnd.IntN(2) == 0 {
			at = rnd.IntN(len(bad)/size) * size
		}
		for range 1 + rnd.IntN(4) {
			bad[at+rnd.IntN(200)] = byte(rnd.IntN(256))
		}
		pages.file = bytes.NewReader(bad[:len(bad)-rnd.IntN(2)*rnd.IntN(size)])
		pages.get(root, fmt.Appendf(nil, "a%03d", rnd.IntN(420)))
	}
	for what, spoil := range map[string]func(root rawPage){
		"a tree that goes round in circles": func(root rawPage) {
			for i := range root.count() {
				copy(root.element(i)[8:16], root[:8])
			}
		},
		"another page in its place": func(root rawPage) { root[0]++ },
		"a branch without children": func(root rawPage) { copy(root[10:12], []byte{0, 0}) },
		"neither branch nor leaf":   func(root rawPage) { copy(root[8:10], []byte{0, 0}) },
	} {
		bad := bytes.Clone(whole)
		page := rawPage(bad[int(root)*size:][:size])
		if page.flags() != branchPage {
			t.Fatal("the root is no branch")
		}
		spoil(page)
		pages.file = bytes.NewReader(bad)
		if _, ok := pages.get(root, []byte("a100")); ok {
			t.Errorf("%s has an answer", what)
		}
	}
}
