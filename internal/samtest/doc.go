// Package samtest holds what template.yaml and the Makefile must keep to. All
// of it is in the tests: the schema of AWS SAM where it is at hand, and the
// decisions of this project, which no schema knows.
package samtest
