"""The gate's last line tells the truth about what ran."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import summary  # noqa: E402

GTEST = """<testsuites><testsuite name="S">
<testcase name="a" classname="S" status="run" result="completed"/>
<testcase name="b" classname="S" status="run" result="completed">{inside}
</testcase>
<testcase name="c" classname="S" status="run" result="skipped">
<skipped message="no GPU"/></testcase>
<testcase name="d" classname="S" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""


class SummaryTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = pathlib.Path(self._folder.name)

    def put(self, name, text):
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def ctest(self, *programs):
        self.put("unit/ctest.junit", "<testsuite>" + "".join(
            f'<testcase name="{name}" classname="{name}" status="{status}">'
            + ("<failure/>" if status == "fail" else "") + "</testcase>"
            for name, status in programs) + "</testsuite>")

    def result(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = summary.main(self.root)
        return out.getvalue().splitlines()[-1], status

    def test_cases_are_counted_one_by_one(self):
        self.ctest(("x_test", "run"), ("lint_size", "run"))
        self.put("unit/x_test.xml", GTEST.format(inside=""))
        self.assertEqual(self.result(), ("3 passed, 0 failed, 2 skipped", 0))

    def test_failed_case(self):
        self.ctest(("x_test", "fail"))
        self.put("unit/x_test.xml", GTEST.format(inside="<failure/>"))
        self.assertEqual(self.result(), ("1 passed, 1 failed, 2 skipped", 1))

    def test_program_that_fails_after_its_cases_passed(self):
        self.ctest(("x_test", "fail"))
        self.put("unit/x_test.xml", GTEST.format(inside=""))
        self.assertEqual(self.result(), ("2 passed, 1 failed, 2 skipped", 1))

    def test_program_that_crashed_before_it_wrote_cases(self):
        self.ctest(("x_test", "fail"), ("y_test", "run"))
        self.assertEqual(self.result(), ("1 passed, 1 failed", 1))

    def test_program_that_was_not_built(self):
        self.ctest(("x_test", "notrun"), ("y_test", "run"))
        self.assertEqual(self.result(), ("1 passed, 1 failed", 1))

    def test_missing_or_broken_verdicts_fail(self):
        (self.root / "unit").mkdir()
        self.assertEqual(self.result(), ("0 passed, 1 failed", 1))
        self.ctest(("x_test", "run"))
        self.put("unit/x_test.xml", "<testsuites><testcase")
        self.assertEqual(self.result(), ("0 passed, 1 failed", 1))

    def test_pytest_and_steps(self):
        self.put("e2e/pytest.xml", "<testsuites><testsuite>"
                 '<testcase classname="t" name="a"/>'
                 '<testcase classname="t" name="b"><error/></testcase>'
                 '<testcase classname="t" name="c"><skipped/></testcase>'
                 "</testsuite></testsuites>")
        self.put("steps.tsv", "build release\tpassed\nfuzz json\tfailed\n")
        self.assertEqual(self.result(), ("2 passed, 2 failed, 1 skipped", 1))

    def test_nothing_ran_is_no_success(self):
        self.assertEqual(self.result(), ("0 passed, 0 failed", 1))


if __name__ == "__main__":
    unittest.main()
