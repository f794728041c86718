package sqleffect

import (
	"errors"
	"testing"

	"edda"
	"edda/effects"
)

// TestAProcedureThatEndsTheTransaction may have had a part of its effect: no
// answer may say that it had none, or all of it once.
func TestAProcedureThatEndsTheTransaction(t *testing.T) {
	for name, body := range map[string]string{
		"commits and fails":   "insert into pays values ('a'); commit; signal sqlstate '45000' set message_text = 'no'",
		"rolls back and goes": "rollback; insert into pays values ('a')",
	} {
		t.Run(name, func(t *testing.T) {
			s, p := on(t, "mysql"), local(t)
			s.exec(t, "create table pays (id varchar(20))")
			s.exec(t, "create procedure pay() begin "+body+"; end")
			r, err := s.call(t, p, "k", map[string]any{"exec": "call pay()"})
			if !errors.Is(err, edda.Permanent) || errors.Is(err, effects.ErrNotSent) || s.number(t, "select count(*) from pays") != 1 {
				t.Errorf("%v %v", r, err)
			}
		})
	}
}

// TestAProcedureThatFails without ending the transaction has had no effect.
func TestAProcedureThatFails(t *testing.T) {
	s, p := on(t, "mysql"), local(t)
	s.exec(t, "create table pays (id varchar(20))")
	s.exec(t, "create procedure pay() begin insert into pays values ('a'); signal sqlstate '45000' set message_text = 'no'; end")
	body := s.must(t, p, statusBad, "k", map[string]any{"exec": "call pay()"})
	if body["message"] != "no" || s.number(t, "select count(*) from pays") != 0 {
		t.Errorf("%v", body)
	}
}
