package jsonvalue

import (
	"encoding/binary"
	"math/bits"
)

// scanner scans one JSON document, token by token. At a syntax error it sets wrong, and then reads
// nothing more.
type scanner struct {
	data   []byte
	at     int
	wrong  bool
	spaced bool // there was space between tokens
}

// next skips space and returns the next byte; 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
			s.spaced = true
		default:
			return c
		}
	}
	return 0
}

// take moves past c and the space before it, if c is next.
func (s *scanner) take(c byte) bool {
	if s.wrong || s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) expect(c byte) { s.wrong = !s.take(c) }

// item moves to the next item of a list or an object after n others. At the end it moves past it
// and reports false.
func (s *scanner) item(n int, begin, end byte) bool {
	if n == 0 {
		s.expect(begin)
	}
	if s.take(end) {
		return false
	}
	if n > 0 {
		s.expect(',')
	}
	return !s.wrong
}

// ended reports whether the document was valid and only space follows.
func (s *scanner) ended() bool { return s.next() == 0 && s.at == len(s.data) && !s.wrong }

// skip moves past a value. depth counts the lists and objects around it.
func (s *scanner) skip(depth int) {
	c := s.next()
	if depth > MaxDepth {
		s.wrong = true
	}
	if s.wrong {
		return
	}
	switch c {
	case '{':
		for n := 0; s.item(n, '{', '}'); n++ {
			s.quoted()
			s.expect(':')
			s.skip(depth + 1)
		}
	case '[':
		for n := 0; s.item(n, '[', ']'); n++ {
			s.skip(depth + 1)
		}
	case '"':
		s.quoted()
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		s.numeral()
	}
}

func (s *scanner) word(w string) {
	if s.wrong || len(s.data)-s.at < len(w) || string(s.data[s.at:s.at+len(w)]) != w {
		s.wrong = true
		return
	}
	s.at += len(w)
}

// quoted moves past a text and returns the bytes between its quotes. The caller checks that they
// are valid UTF-8.
func (s *scanner) quoted() (part []byte, escaped bool) {
	s.expect('"')
	for begin := s.at; !s.wrong; s.at++ {
		s.at += ordinary(s.data[s.at:])
		switch {
		case s.at == len(s.data) || s.data[s.at] < ' ':
			s.wrong = true
			return nil, false
		case s.data[s.at] == '"':
			s.at++
			return s.data[begin : s.at-1], escaped
		default:
			escaped = true
			s.escape()
		}
	}
	return nil, false
}

// Eight bytes of a text are compared together, as the bytes of one word.
const (
	wordBytes = 8
	eachByte  = 0x0101010101010101
	highBits  = 0x80 * eachByte
)

// ordinary counts the bytes before the next control character, quote or backslash. Subtracting 1,
// or the space, from such a byte sets its highest bit. It may set that of a later byte, too, so
// only the lowest is exact.
func ordinary(text []byte) (n int) {
	for ; n+wordBytes <= len(text); n += wordBytes {
		w := binary.LittleEndian.Uint64(text[n:])
		quote, backslash := w^'"'*eachByte, w^'\\'*eachByte
		if found := ((w-' '*eachByte)&^w | (quote-eachByte)&^quote | (backslash-eachByte)&^backslash) & highBits; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(text) && text[n] >= ' ' && text[n] != '"' && text[n] != '\\' {
		n++
	}
	return n
}

// escape moves to the last byte of an escape.
func (s *scanner) escape() {
	switch s.after() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
	case 'u':
		s.at++
		for range 4 {
			if !hex(s.after()) {
				s.wrong = true
				return
			}
			s.at++
		}
	default:
		s.wrong = true
	}
}

// after returns the byte after this one; 0 at the end.
func (s *scanner) after() byte {
	if s.at+1 >= len(s.data) {
		return 0
	}
	return s.data[s.at+1]
}

func hex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// numeral moves past a number and returns its text.
func (s *scanner) numeral() []byte {
	begin := s.at
	s.sign("-")
	if !s.sign("0") {
		s.digits()
	}
	if s.sign(".") {
		s.digits()
	}
	if s.sign("eE") {
		s.sign("+-")
		s.digits()
	}
	return s.data[begin:s.at]
}

// sign moves past one of some bytes, if it is next.
func (s *scanner) sign(any string) bool {
	for i := range len(any) {
		if s.at < len(s.data) && s.data[s.at] == any[i] {
			s.at++
			return true
		}
	}
	return false
}

// digits moves past one digit or more.
func (s *scanner) digits() {
	begin := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	s.wrong = s.wrong || s.at == begin
}
