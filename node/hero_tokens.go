package node

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"edda/access"
	"edda/internal/files"
)

// actorTokens are the actors that may call the coordinator, by the hash of their token or,
// for development, by the token itself.
type actorTokens struct {
	hashes map[[sha256.Size]byte]uint32
	plain  map[string]uint32
	seen   map[[sha256.Size]byte]uint32 // of both, by the hash
}

// mostActorTokens bounds the file of tokens, to some 200,000 actors.
const mostActorTokens = 16 << 20

// readActorTokens reads lines of a token, or its hash, and the number of its actor.
func readActorTokens(file string) (out actorTokens, err error) {
	if file == "" {
		return out, nil
	}
	text, err := files.Read(file, mostActorTokens)
	if err != nil {
		return out, fmt.Errorf("hero.api.tokens: %w", err)
	}
	out = actorTokens{hashes: map[[sha256.Size]byte]uint32{}, plain: map[string]uint32{}, seen: map[[sha256.Size]byte]uint32{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := out.add(words); err != nil {
			return out, fmt.Errorf("hero.api.tokens: %s:%d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return out, fmt.Errorf("hero.api.tokens: %s: %w", file, err)
	}
	if len(out.hashes)+len(out.plain) == 0 {
		return out, fmt.Errorf("hero.api.tokens: %s holds no token", file)
	}
	return out, nil
}

// add reads one line. Its errors never quote the line.
func (t *actorTokens) add(words []string) error {
	actor, err := strconv.ParseUint(words[len(words)-1], 10, 32)
	if len(words) != 2 || err != nil || actor == 0 {
		return errors.New("want the hash of a token, or a token, and the number of its actor")
	}
	sum := sha256.Sum256([]byte(words[0]))
	hashed := access.IsHash(words[0])
	if hashed {
		if sum, err = access.ParseHash(words[0]); err != nil {
			return err
		}
	}
	if other, taken := t.seen[sum]; taken && other != uint32(actor) {
		return fmt.Errorf("this token is that of actor %d, too", other) // the caller would be ambiguous
	}
	t.seen[sum] = uint32(actor)
	if hashed {
		t.hashes[sum] = uint32(actor)
	} else {
		t.plain[words[0]] = uint32(actor)
	}
	return nil
}
