from fedrouter.report.page import Page


def test_every_text_is_escaped():
    page = Page("<script>title</script>")
    page.heading("<b>")
    page.text("<script>alert(1)</script>", "warning")
    page.code("a < b")
    page.table(["<th>"], [["<td>&"]])
    html = page.html()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;td&gt;&amp;" in html


def test_a_page_carries_its_own_style():
    assert "<style>" in Page("x").html()
    assert "http" not in Page("x").html()
