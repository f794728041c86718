// Package datasync makes what was written to a file durable, at the least cost that the
// system offers. The store's log and what measures the disk below it do the same so.
package datasync
