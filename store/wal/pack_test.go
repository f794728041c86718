package wal

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestTheDictionaryIsOfTheFormat: values in files need the dictionary that they were compressed
// with.
func TestTheDictionaryIsOfTheFormat(t *testing.T) {
	if sum := crc32.ChecksumIEEE(dictionaryText); sum != 0x4d420b76 {
		t.Errorf("the dictionary was changed: its checksum is %#x. Add another, with a number of its own", sum)
	}
}

// packed is what a value is in its bucket; it must come back.
func packed(t *testing.T, p *Packer, value []byte) []byte {
	t.Helper()
	in := p.Pack(value)
	if got := unpack(in); !bytes.Equal(got, value) {
		t.Fatalf("%x became %x and then %x", value, in, got)
	}
	return in
}

func TestPackedValuesRoundTrip(t *testing.T) {
	noise := make([]byte, 4<<10)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	long := strings.Repeat("alike ", mostPacked/6+1)
	for name, test := range map[string]struct {
		value   string
		smaller bool
	}{
		"nothing":                {"", false},
		"a short one":            {`{"status":"done"}`, false},
		"a row":                  {`{"tenant":"a","command_id":"c1","effect":"e","owner":"w","claimed":"2026-03-01T12:00:00Z"}`, true},
		"noise":                  {string(noise), false},
		"a long one":             {long[:mostPacked], true},
		"one too long":           {long[:mostPacked+1], false},
		"the mark alone":         {"\xFE", false},
		"the mark, and a row":    {"\xFE\x01" + `{"tenant":"a"}`, false},
		"the mark and much else": {"\xFE" + long[:1000], true},
		"the mark and noise":     {"\xFE" + string(noise), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Packer{}
			if in := packed(t, p, []byte(test.value)); len(in) < len(test.value) != test.smaller {
				t.Errorf("%d bytes became %d", len(test.value), len(in))
			}
			p.Plain = true
			packed(t, p, []byte(test.value))
		})
	}
}

// TestValuesAreCompressedInTheirBucketsOnly: readers of memtables, the file and cursors always see
// plain values.
func TestValuesAreCompressedInTheirBucketsOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := openFile(path, Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat(`{"status":"done","steps":[]}`, 10)
	if err := db.Update(func(tx *Tx) error { return tx.Bucket([]byte(flat)).Put([]byte("k"), []byte(value)) }); err != nil {
		t.Fatal(err)
	}
	reads := func() {
		t.Helper()
		if err := db.View(func(tx *Tx) error {
			b := tx.Bucket([]byte(flat))
			_, first := b.Cursor().First()
			_, last := b.Cursor().Last()
			for _, got := range [][]byte{b.Get([]byte("k")), first, last} {
				if string(got) != value {
					return fmt.Errorf("it reads %.40q", got)
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	reads()
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	reads()
	if err := db.Raw().View(func(tx *bolt.Tx) error {
		if in := tx.Bucket([]byte(flat)).Get([]byte("k")); len(in) > len(value)/2 {
			return fmt.Errorf("%d of %d bytes are in the bucket", len(in), len(value))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedValueAllocatesLittle: it may claim to have four gigabytes.
func TestADamagedValueAllocatesLittle(t *testing.T) {
	damaged := []byte("\xFE\x01\xFF\xFF\xFF\xFF\x0Fxxxx")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := unpack(damaged)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > mostPacked || !bytes.Equal(got, damaged) {
		t.Errorf("%d bytes were allocated for %x", n, got)
	}
}

// FuzzAValue reads what anybody may have put into a bucket, without a panic and within
// bounds, and packs it.
func FuzzAValue(f *testing.F) {
	p := &Packer{}
	for _, v := range []string{"", "x", "\xFE", "\xFE\x00", "\xFE\x00x", "\xFE\x01", "\xFE\x01\xFF\xFF\xFF\xFF\x0F", "\xFE\x02x", strings.Repeat(`{"status":"done"}`, 9)} {
		f.Add([]byte(v))
		f.Add(p.Pack([]byte(v)))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if got := unpack(value); len(got) > max(mostPacked, len(value)) {
			t.Errorf("%d bytes became %d", len(value), len(got))
		}
		packed(t, &Packer{}, value)
	})
}

// TestPackedValuesStayValid: a transaction of bbolt refers to them until it ends.
func TestPackedValuesStayValid(t *testing.T) {
	value := func(i int) []byte {
		return []byte(fmt.Sprintf(`{"tenant":"a","command_id":"c%d","effect":"e","owner":"w","claimed":"2026-03-01T12:00:00Z"}`, i))
	}
	p := &Packer{}
	var all [][]byte
	for i := range 2 * packBlock / len(value(0)) {
		all = append(all, p.Pack(value(i)))
	}
	for i, in := range all {
		if got := unpack(in); !bytes.Equal(got, value(i)) {
			t.Fatalf("value %d became %s", i, got)
		}
	}
}
