"""The templates: each takes an article and a random state to HTML, the blocks of main text, and whether the page says
date and author."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tools.pages import Article, headline, sentence

Filled = tuple[str, list[str], bool, bool]

CODE = "def 水位(记录):\n    总和 = sum(记录)\n    return 总和 / len(记录)\n\nprint(水位([3, 4, 5]))"
CHANNELS = "首页 新闻 国内 国际 财经 体育 娱乐 科技 汽车 房产 教育 健康 军事 视频 图片 论坛 博客".split()


def _links(chance: random.Random, count: int, tag: str = "li") -> str:
    return "".join(
        f'<{tag}><a href="/a/{chance.randint(1, 10**6)}.html" target="_blank">{headline(chance)}</a></{tag}>\n'
        for _ in range(count)
    )


def _channels(separator: str = " | ") -> str:
    return separator.join(f'<a href="/{index}/">{name}</a>' for index, name in enumerate(CHANNELS))


def _paragraphs(blocks: Iterable[str], opening: str = "<p>　　", closing: str = "</p>\n") -> str:
    return "".join(opening + block + closing for block in blocks)


def _chinese_date(date: str) -> str:
    year, month, day = date.split("-")
    return f"{year}年{month}月{day}日"


def news(article: Article, chance: random.Random) -> Filled:
    """A news portal: id artibody, crumbs, ranking, related links, comments, footer."""
    html = f"""<!DOCTYPE html><html lang="zh-CN"><head><meta charset="utf-8"><title>{article.title}_国内新闻_远山新闻网</title>
<meta name="keywords" content="新闻,{article.title}"><meta property="og:title" content="{article.title}">
<meta property="article:published_time" content="{article.date}T08:12:00+08:00">
<meta property="article:author" content="{article.author}">
<script>var docId = 1; document.write("<div>不是正文</div>");</script><style>.a{{color:red}}</style></head><body>
<div class="top-bar"><div class="wrap">{_channels()}</div><div class="user"><a href="/login">登录</a> <a href="/reg">注册</a></div></div>
<div class="path"><a href="/">远山首页</a> &gt; <a href="/c">国内新闻</a> &gt; 正文</div>
<h1 class="main-title">{article.title}</h1>
<div class="top-bar-inner"><span class="date">{_chinese_date(article.date)} 08:12</span> <span class="source">来源：<a href="/s">远山日报</a></span>
<a href="#c">评论(<span>128</span>)</a> <span class="share">分享到：<a href="x">微博</a> <a href="y">微信</a></span></div>
<div class="article" id="artibody">{_paragraphs(article.paragraphs)}<p class="show_author">作者：{article.author}　责任编辑：{headline(chance)[:3]}</p>
<div class="img_wrapper"><img src="a.jpg" alt="图"></div></div>
<div class="keywords">关键词：<a href="k">河流</a> <a href="k">铁路</a></div>
<div class="blk"><h2>相关阅读</h2><ul>{_links(chance, 6)}</ul></div>
<div class="right"><h3>24小时热榜</h3><ol>{_links(chance, 10)}</ol><h3>图片精选</h3><ul>{_links(chance, 4)}</ul></div>
<div class="comment-box"><h3>网友评论</h3><div>远山网友 <p>{sentence(chance)}</p><a href="r">回复</a></div></div>
<div class="foot">{_channels(" ")}<p>远山网简介 | 广告服务 | 联系我们 | 招聘信息</p><p>Copyright © 1998-2024 远山新闻网 版权所有</p>
<p>京ICP备00000000号-1 京公网安备 11000000000000号</p><p>违法和不良信息举报电话：010-00000000</p></div></body></html>"""
    return html, list(article.paragraphs), True, True


def government(article: Article, chance: random.Random) -> Filled:
    """A government site: a form around the page, a table of document facts, UCAP-CONTENT, sponsors' footer."""
    html = f"""<html><head><meta charset="utf-8"><title>{article.title}_通知公告_远山县人民政府</title>
<meta name="SiteName" content="远山县人民政府"><meta name="PubDate" content="{article.date} 10:00"><meta name="ColumnName" content="通知公告">
</head><body><form name="aspnetForm" method="post"><input type="hidden" value="x">
<div class="header"><a href="/">网站首页</a><a href="/zw">政务公开</a><a href="/fw">办事服务</a><a href="/hd">互动交流</a></div>
<div class="dqwz">您当前所在位置：<a href="/">首页</a>&nbsp;&gt;&nbsp;<a href="/zw">政务公开</a>&nbsp;&gt;&nbsp;通知公告</div>
<table class="xxgk" width="100%"><tr><td>索引号：</td><td>0000/2024-00017</td><td>主题分类：</td><td>农业、水利</td></tr>
<tr><td>发文机关：</td><td>远山县人民政府办公室</td><td>成文日期：</td><td>{_chinese_date(article.date)}</td></tr></table>
<div class="title">{article.title}</div>
<div class="info">发布时间：{article.date} 10:00　　来源：县政府办　　浏览次数：<script>show()</script>　　字体：[<a href="#">大</a> <a href="#">中</a> <a href="#">小</a>]</div>
<div class="pages_content" id="UCAP-CONTENT"><div class="TRS_Editor">{_paragraphs(article.paragraphs, '<p style="text-indent:2em">')}</div></div>
<div class="fx">分享到：<a href="#">微信</a><a href="#">微博</a></div><p>【<a href="javascript:print()">打印本页</a>】【<a href="javascript:close()">关闭窗口</a>】</p>
<ul class="prenext"><li>上一篇：<a href="1">{headline(chance)}</a></li><li>下一篇：<a href="2">{headline(chance)}</a></li></ul>
<div class="links"><select><option>国务院部门网站</option><option>省政府部门网站</option></select></div>
<div class="foot"><p>主办单位：远山县人民政府　承办单位：远山县电子政务中心</p><p>网站标识码：0000000000　冀ICP备00000000号　<a href="g">冀公网安备 13000000000000号</a></p>
<p>地址：远山县中山路1号　邮编：000000　电话：0000-0000000</p></div></form></body></html>"""
    return html, list(article.paragraphs), True, False


def blog(article: Article, chance: random.Random) -> Filled:
    """A WordPress blog: entry-content, tags, neighbours, comments, widgets."""
    comments = "".join(
        f'<li class="comment"><div class="comment-author">{name}</div><time>2024年1月{day}日</time><p>{sentence(chance)}</p>'
        f'<a class="comment-reply-link" href="#r">回复</a></li>'
        for name, day in zip("路人甲 小山 Mr.Lee".split(), (3, 5, 9), strict=True)
    )
    html = f"""<!doctype html><html lang="zh-Hans"><head><meta charset="UTF-8"><title>{article.title} – 半亩方塘</title>
<script type="application/ld+json">{{"@type":"BlogPosting","datePublished":"{article.date}T09:00:00+08:00","author":{{"@type":"Person","name":"{article.author}"}}}}</script></head>
<body class="post-template-default single"><div id="page"><header id="masthead"><h2 class="site-title"><a href="/">半亩方塘</a></h2><p class="site-description">读书、写字、看云</p></header>
<nav id="site-navigation"><ul><li><a href="/">首页</a></li><li><a href="/about">关于</a></li><li><a href="/links">友情链接</a></li></ul></nav>
<main id="primary"><article id="post-12"><header class="entry-header"><h1 class="entry-title">{article.title}</h1>
<div class="entry-meta">发布于 <time datetime="{article.date}T09:00:00+08:00">{article.date}</time> 由 <a href="/author">{article.author}</a></div></header>
<div class="entry-content">{_paragraphs(article.paragraphs, "<p>")}</div>
<footer class="entry-footer">分类：<a href="c">随笔</a> 标签：<a href="t">河</a>、<a href="t">桥</a></footer></article>
<nav class="post-navigation"><a href="p">上一篇：{headline(chance)}</a><a href="n">下一篇：{headline(chance)}</a></nav>
<div id="comments" class="comments-area"><h2 class="comments-title">《{article.title}》有 3 条评论</h2><ol class="comment-list">{comments}</ol>
<div id="respond"><h3>发表评论</h3><form><p>您的电子邮箱地址不会被公开。</p><label>评论</label><textarea></textarea></form></div></div></main>
<aside id="secondary"><section class="widget"><h2>近期文章</h2><ul>{_links(chance, 5)}</ul></section>
<section class="widget"><h2>归档</h2><ul><li><a href="m">2024年1月</a></li><li><a href="m">2023年12月</a></li></ul></section></aside>
<footer id="colophon">自豪地采用WordPress | 沪ICP备00000000号</footer></div></body></html>"""
    return html, list(article.paragraphs), True, True


def forum(article: Article, chance: random.Random) -> Filled:
    """A Discuz thread: posts in cells of class t_f; the replies are what the page is for, too."""
    posts = list(article.paragraphs)
    opening, replies = posts[: len(posts) // 2 + 1], posts[len(posts) // 2 + 1 :]
    rows = ""
    for floor, post in enumerate(["<br />\n<br />\n".join(opening), *replies], 1):
        rows += f"""<table id="pid{floor}" class="plhin" cellspacing="0"><tr><td class="pls" rowspan="2"><div class="authi"><a href="u{floor}">网友{floor}号</a></div>
<p><em>高级会员</em></p><dl><dt>积分</dt><dd>{chance.randint(9, 999)}</dd><dt>帖子</dt><dd>{chance.randint(9, 99)}</dd></dl><ul><li><a href="m">发消息</a></li></ul></td>
<td class="plc"><div class="pi"><strong><a href="#{floor}">{floor}<sup>#</sup></a></strong><div class="authi"><em>发表于 {article.date} 1{floor % 10}:20:30</em> <span class="pipe">|</span> <a href="o">只看该作者</a></div></div>
<div class="pct"><div class="pcb"><div class="t_fsz"><table cellspacing="0"><tr><td class="t_f" id="postmessage_{floor}">{post}</td></tr></table></div></div></div></td></tr>
<tr><td class="plc"><div class="po"><a href="r">回复</a> <a href="s">支持</a> <a href="d">反对</a> <a href="j">举报</a></div></td></tr></table>"""
    html = f"""<html><head><title>{article.title} - 闲谈 - 渡口论坛 - Powered by Discuz!</title></head><body id="nv_forum">
<div id="toptb"><a href="#">设为首页</a><a href="#">收藏本站</a></div><div id="hd"><div id="nv"><ul>{_links(chance, 3)}</ul></div><div id="um">用户名 密码 <a href="l">找回密码</a> <a href="r">立即注册</a></div></div>
<div id="pt" class="bm"><div class="z"><a href="./">渡口论坛</a><em>&rsaquo;</em><a href="f">闲谈</a><em>&rsaquo;</em> <a href="t">{article.title}</a></div></div>
<div class="pgs"><a href="post">发帖</a><a href="reply">回复</a></div>
<table class="plhin"><tr><td class="pls"><span>查看: <b>1024</b> | 回复: <b>{len(replies)}</b></span></td><td class="plc"><h1 class="ts"><a href="t">{article.title}</a></h1></td></tr></table>
<div id="postlist">{rows}</div><div class="pgs"><a href="back">返回列表</a></div>
<div id="f_pst"><form>您需要登录后才可以回帖 <a href="l">登录</a> | <a href="r">立即注册</a></form></div>
<div id="ft"><p>Powered by <strong><a href="x">Discuz!</a></strong> X3.4</p><p>GMT+8, 2024-1-1 12:00 , Processed in 0.02 second(s)</p><p>粤ICP备00000000号</p></div></body></html>"""
    return html, posts, True, False


def wechat(article: Article, chance: random.Random) -> Filled:
    """A WeChat article: sections and spans without names in js_content, which is hidden until its script runs."""
    body = "".join(
        f'<section style="margin:0 8px"><p style="line-height:1.75em"><span style="font-size:15px;"><span>{block[:9]}</span>'
        f"<strong>{block[9:12]}</strong>{block[12:]}</span></p><p><br></p></section>"
        for block in article.paragraphs
    )
    html = f"""<!DOCTYPE html><html class=""><head><meta http-equiv="Content-Type" content="text/html; charset=utf-8"><title></title>
<meta name="author" content="{article.author}"><meta property="og:title" content="{article.title}"><meta property="og:site_name" content="微信公众平台">
<script>var ct = "1600000000"; var publish_time = "{article.date}" || "";</script></head><body id="activity-detail" class="zh_CN">
<div id="js_article" class="rich_media"><div class="rich_media_inner"><div id="page-content"><div id="img-content" class="rich_media_wrp">
<h1 class="rich_media_title" id="activity-name">{article.title}</h1>
<div id="meta_content" class="rich_media_meta_list"><span class="rich_media_meta rich_media_meta_text">{article.author}</span> <span id="profileBt"><a href="javascript:void(0);" id="js_name">山间来信</a></span> <em id="publish_time">{article.date}</em></div>
<div class="rich_media_content" id="js_content" style="visibility: hidden;">{body}</div></div></div>
<div class="rich_media_area_extra" id="js_pc_qr_code"><div class="qr_code_pc"><p>微信扫一扫<br>关注该公众号</p></div></div></div></div>
<div id="js_tags" style="display:none;">收录于合集</div><div class="weui-dialog" style="display: none;">微信扫一扫可打开此内容，使用完整服务。轻点两下取消赞，轻点两下取消在看。</div>
<script>document.getElementById("js_content").style.visibility = "visible";</script></body></html>"""
    return html, list(article.paragraphs), True, True


def encyclopedia(article: Article, chance: random.Random) -> Filled:
    """An encyclopedia entry: summary, info box, table of contents, headings with edit links, reference marks and list."""
    names = ["起源", "发展", "影响", "评价"]
    size = max(1, len(article.paragraphs) // 4)
    blocks, body = [article.paragraphs[0]], ""
    rest = list(article.paragraphs[1:])
    for number, name in enumerate(names, 1):
        part = rest[:size] if number < 4 else rest
        rest = rest[size:] if number < 4 else []
        if not part:
            break
        blocks += [name, *part]
        body += f'<div class="para-title level-2"><h2 class="title-text">{name}</h2><a class="edit-icon" href="e">编辑</a></div>'
        body += "".join(
            f'<div class="para">{text}<sup class="sup--normal" data-sup="{number}"><a href="#r{number}">[{number}]</a></sup></div>'
            for text in part
        )
    contents = "".join(f'<li><a href="#{number}">{number} {name}</a></li>' for number, name in enumerate(names, 1))
    html = f"""<!DOCTYPE html><html><head><meta charset="utf-8"><title>{article.title}_文海百科</title></head><body class="wiki-lemma">
<div class="header-wrapper"><a href="/">网页</a><a href="/n">新闻</a><a href="/t">贴吧</a><input value="搜索"></div>
<div class="body-wrapper"><div class="content-wrapper"><div class="content"><div class="main-content">
<div class="top-tool"><a class="collect-tip" href="c">收藏</a> 查看<a href="m">我的收藏</a> <span class="vote">0</span>有用+1</div>
<dl class="lemmaWgt-lemmaTitle"><dd><h1>{article.title}</h1><a class="edit-lemma" href="e">编辑</a> <a href="d">讨论</a></dd></dl>
<div class="lemma-summary"><div class="para">{blocks[0]}</div></div>
<div class="lemma-catalog"><h2 class="block-title">目录</h2><ol class="catalog-list">{contents}</ol></div>
{body}<div class="lemma-reference"><dl><dt>参考资料</dt></dl><ul><li><a href="x">{headline(chance)}</a>．文海网 [引用日期2020-01-02]</li></ul></div>
<div class="tag-list">词条标签：<a href="t">人物</a> <a href="t">地理</a></div></div>
<div class="side-content"><dl class="side-box"><dt>词条统计</dt><dd>浏览次数：10086次</dd><dd>编辑次数：17次<a href="h">历史版本</a></dd></dl></div></div></div></div>
<div class="footer">©2024 文海 <a href="u">使用前必读</a> | <a href="b">百科协议</a> | 京ICP证000000号</div></body></html>"""
    return html, blocks, False, False


def documentation(article: Article, chance: random.Random) -> Filled:
    """Software documentation: a tree of chapters at the side, code blocks, a table of options, neighbours."""
    blocks = list(article.paragraphs)
    middle = len(blocks) // 2
    table = ["--level\t水位的单位，缺省为厘米。", "--since\t从哪一天算起。"]
    rows = "".join("<tr><td><code>{}</code></td><td>{}</td></tr>".format(*row.split("\t")) for row in table)
    html = f"""<!DOCTYPE html><html lang="zh-CN"><head><meta charset="utf-8"/><title>{article.title} — 水文手册 2.1 文档</title></head><body>
<div class="related" role="navigation"><h3>导航</h3><ul><li><a href="genindex.html">索引</a></li><li><a href="next.html">下一页</a> |</li><li><a href="prev.html">上一页</a> |</li></ul></div>
<div class="document"><div class="documentwrapper"><div class="bodywrapper"><div class="body" role="main"><section id="x"><h1>{article.title}<a class="headerlink" href="#x" title="此标题的永久链接">¶</a></h1>
{_paragraphs(blocks[:middle], "<p>")}<div class="highlight-python notranslate"><div class="highlight"><pre><span></span><span class="k">{CODE}</span>
</pre></div></div>{_paragraphs(blocks[middle:], "<p>")}<table class="docutils"><thead><tr><th>选项</th><th>说明</th></tr></thead><tbody>{rows}</tbody></table></section><div class="clearer"></div></div></div></div>
<div class="sphinxsidebar" role="navigation" aria-label="Main"><div class="sphinxsidebarwrapper"><h3><a href="index.html">目录</a></h3><ul>{_links(chance, 12)}</ul><h4>上一主题</h4><p><a href="prev.html">{headline(chance)}</a></p>
<div role="note"><h3>本页</h3><ul><li><a href="_sources/x.txt">显示源代码</a></li></ul></div><div id="searchbox" role="search"><h3>快速搜索</h3><form><input/></form></div></div></div></div>
<div class="footer" role="contentinfo">&#169; 版权所有 2024, 水文手册作者. 由 <a href="s">Sphinx</a> 7.2 创建。</div></body></html>"""
    return html, [*blocks[:middle], CODE, *blocks[middle:], "选项\t说明", *table], False, False


def shop(article: Article, chance: random.Random) -> Filled:
    """A product page: description and specification are the text; price, buttons, reviews and offers stand around."""
    facts = [
        f"{name}：{value}"
        for name, value in zip("品牌 产地 材质 净重".split(), "远山 河北 榉木 2.4千克".split(), strict=True)
    ]
    html = f"""<!DOCTYPE html><html><head><meta charset="utf-8"><title>【{article.title}】价格_图片_评价-渡口商城</title></head><body>
<div id="shortcut"><ul><li><a href="l">你好，请登录</a></li><li><a href="r">免费注册</a></li><li><a href="o">我的订单</a></li></ul></div>
<div class="search-box"><input placeholder="搜索"><button>搜索</button> 热词：<a href="s">水壶</a><a href="s">雨衣</a></div>
<div class="crumb-wrap"><a href="/1">家居</a> &gt; <a href="/2">木器</a> &gt; <a href="/3">其他</a></div>
<div class="itemInfo"><div class="sku-name">{article.title}</div><div class="summary-price">价格：<span>¥128.00</span> <a href="n">降价通知</a></div>
<div class="choose"><dl><dt>颜色</dt><dd><a href="1">原木</a><a href="2">深色</a></dd></dl><button>加入购物车</button><a class="btn" href="b">立即购买</a></div></div>
<div class="aside"><h3>看了又看</h3><ul>{_links(chance, 6)}</ul></div>
<div id="detail"><div class="tab-main"><ul><li><a href="#1">商品介绍</a></li><li><a href="#2">规格与包装</a></li><li><a href="#3">商品评价</a></li></ul></div>
<div class="detail-content"><ul class="parameter2">{"".join(f"<li>{fact}</li>" for fact in facts)}</ul>{_paragraphs(article.paragraphs, "<div>", "</div>")}</div></div>
<div id="comment"><h3>商品评价</h3><div class="comment-item"><div class="user">j***n</div><p>{sentence(chance)}</p><span>2024-01-02 10:00</span> <a href="u">有用(3)</a></div></div>
<div class="m"><h3>猜你喜欢</h3><ul>{_links(chance, 8)}</ul></div>
<div id="footer"><a href="a">关于我们</a>|<a href="c">联系我们</a>|<a href="j">人才招聘</a><p>Copyright © 2004-2024 渡口商城 版权所有</p><p>增值电信业务经营许可证 京ICP证000000号</p></div></body></html>"""
    return html, [*facts, *article.paragraphs], False, False


def novel(article: Article, chance: random.Random) -> Filled:
    """A chapter on a novel site: line breaks and hard spaces, neighbours above and below, the site's own cries."""
    body = "<br /><br />".join("&nbsp;&nbsp;&nbsp;&nbsp;" + block for block in article.paragraphs)
    html = f"""<!doctype html><html><head><meta charset="gbk"><title>{article.title}_山河旧事_笔下文学</title></head><body>
<div id="wrapper"><div class="header"><div class="header_logo"><a href="/">笔下文学</a></div><script>login();</script></div>
<div class="nav"><ul><li><a href="/">首页</a></li><li><a href="/bookcase">我的书架</a></li><li><a href="/xh">玄幻小说</a></li><li><a href="/ds">都市小说</a></li></ul></div>
<div class="content_read"><div class="box_con"><div class="con_top"><script>bdshare();</script><a href="/">笔下文学</a> &gt; <a href="/b">山河旧事</a> &gt; 第十七章 {article.title}</div>
<div class="bookname"><h1>{article.title}</h1><div class="bottem1"><a href="t">投推荐票</a> <a href="16.html">上一章</a> &larr; <a href="./">章节目录</a> &rarr; <a href="18.html">下一章</a> <a href="m">加入书签</a></div>
<div class="lm">热门推荐：{"、".join(f'<a href="/{index}">{headline(chance)}</a>' for index in range(6))}</div></div>
<div id="content">{body}</div><script>read3();</script>
<div class="bottem2"><a href="t">投推荐票</a> <a href="16.html">上一章</a> &larr; <a href="./">章节目录</a> &rarr; <a href="18.html">下一章</a> <a href="m">加入书签</a></div></div></div>
<div class="footer"><div class="footer_cont"><p>本站所有小说为转载作品，所有章节均由网友上传，转载至本站只是为了宣传本书让更多读者欣赏。</p><p>Copyright &copy; 2020 笔下文学 All Rights Reserved.</p></div></div></div></body></html>"""
    return html, list(article.paragraphs), False, False


def traditional(article: Article, chance: random.Random) -> Filled:
    """A news page from Taiwan; the text itself is given by the caller, in either script."""
    html = f"""<!DOCTYPE html><html lang="zh-Hant"><head><meta charset="utf-8"><title>{article.title} | 生活 | 遠山新聞網</title>
<meta name="author" content="{article.author}"><meta name="pubdate" content="{article.date}T10:20:00+08:00"></head><body>
<header class="story-header"><nav><a href="/">即時</a><a href="/p">要聞</a><a href="/s">社會</a><a href="/l">生活</a></nav></header>
<div class="breadcrumb"><a href="/">遠山新聞網</a> / <a href="/l">生活</a> / 生活新聞</div>
<section class="article-wrapper"><article class="article-content"><h1 class="article-content__title">{article.title}</h1>
<section class="authors"><time class="article-content__time">{article.date} 10:20</time> <span class="article-content__author">遠山報 / 記者{article.author}／台北報導</span></section>
<section class="article-content__editor">{_paragraphs(article.paragraphs, "<p>")}<figure><img src="x.jpg"></figure>
<p>延伸閱讀：</p><p><a href="1">{headline(chance)}</a></p><p><a href="2">{headline(chance)}</a></p></section>
<section class="keywords"><a href="k">河流</a> <a href="k">鐵路</a></section></article></section>
<section class="more-news"><h2>熱門新聞</h2><ul>{_links(chance, 8)}</ul></section><section class="discuss"><h2>網友回應</h2><p>規範：張貼文章或下標籤，不得有違法或侵害他人權益之言論，違者應自負法律責任。</p></section>
<footer>遠山新聞網著作權所有 © 2024 All Rights Reserved. <a href="a">關於我們</a> <a href="p">隱私權聲明</a></footer></body></html>"""
    return html, list(article.paragraphs), True, True


def tables(article: Article, chance: random.Random) -> Filled:
    """A page of 2005: tables in tables, font tags in capitals, no names that mean anything, nothing closed properly."""
    body = "<BR><BR>\n".join("　　" + block for block in article.paragraphs)
    html = f"""<HTML><HEAD><META http-equiv=Content-Type content="text/html; charset=gb2312"><TITLE>{article.title}</TITLE></HEAD>
<BODY bgColor=#ffffff leftMargin=0 topMargin=0><TABLE width=778 border=0 align=center><TR><TD bgColor=#336699 height=24><FONT color=white size=2>{_channels("&nbsp;")}</FONT></TD></TR></TABLE>
<TABLE width=778 align=center cellPadding=0><TR><TD width=160 vAlign=top bgcolor=#eeeeee><TABLE width="100%"><TR><TD><B>栏目导航</B><TR><TD>{_links(chance, 8, "font")}<TR><TD>
<form action=/search>站内搜索：<INPUT name=k><INPUT type=submit value=搜索></form></TABLE></TD>
<TD vAlign=top><TABLE width="96%" align=center><TR><TD class=unnamed1><FONT size=2>您的位置：<A href="/">首页</A> &gt;&gt; <A href="/n">文章</A> &gt;&gt; 正文</FONT><HR>
<TR><TD align=center><FONT size=4><B>{article.title}</B></FONT><TR><TD align=center><FONT size=2 color=gray>作者：{article.author}　　来源：本站原创　　点击数：{chance.randint(9, 999)}　　更新时间：{article.date}</FONT>
<TR><TD style="font-size:14px"><P>{body}</P><TR><TD align=right><FONT size=2>文章录入：admin　　责任编辑：admin</FONT>
<TR><TD><LI><FONT color=#0099cc>上一篇文章：</FONT><A href="1.asp">{headline(chance)}</A><BR><LI>下一篇文章：<A href="2.asp">{headline(chance)}</A>
<TR><TD>【<A href="#">发表评论</A>】【<A href="#">加入收藏</A>】【<A href="#">告诉好友</A>】【<A href="#">打印此文</A>】【<A href="#">关闭窗口</A>】</TABLE>
<TABLE><TR><TD><B>最新热点</B></TD><TD><B>最新推荐</B></TD></TR><TR><TD>{_links(chance, 4, "div")}</TD><TD>{_links(chance, 4, "div")}</TD></TR></TABLE></TD></TR></TABLE>
<CENTER><FONT size=2>| <A href="#">设为首页</A> | <A href="#">加入收藏</A> | <A href="#">联系站长</A> | <A href="#">友情链接</A> | <A href="#">版权申明</A> |<BR>站长：远山 豫ICP备00000000号</FONT></CENTER></BODY></HTML>"""
    return html, list(article.paragraphs), True, True


def soup(article: Article, chance: random.Random) -> Filled:
    """A single-page application rendered on a server: class names are hashes, everything is a div, comments below."""
    comments = "".join(
        f'<div class="_3xK"><div class="_1aB">用户{chance.randint(1000, 9999)}</div><div class="_9zQ">{sentence(chance)}</div><div class="_7tt"><span>3小时前</span><span>赞</span><span>回复</span></div></div>'
        for _ in range(4)
    )
    html = f"""<!DOCTYPE html><html><head><meta charset="utf-8"><title>{article.title} - 远山号</title><script>window.__INITIAL_STATE__={{"a":"<div>不是正文</div>"}}</script></head><body><div id="root"><div class="_2Xy">
<div class="_1Ab"><div class="_q1"><a href="/">推荐</a></div><div class="_q1"><a href="/h">热点</a></div><div class="_q1"><a href="/v">视频</a></div><div class="_q2"><a href="/login">登录</a></div></div>
<div class="_5Rt"><div class="_8Kk"><div class="_tT1">{article.title}</div><div class="_mM2"><span>{article.author}</span><span> · </span><span>{article.date} 12:30</span></div>
<div class="_cC3">{_paragraphs(article.paragraphs, '<div class="_pP">', "</div>")}</div><div class="_bB4"><span>举报</span><span>分享</span><span>点赞 12</span></div></div>
<div class="_cm"><div class="_ch">全部评论（4）</div>{comments}<div class="_more"><a href="m">查看更多评论</a></div></div></div>
<div class="_6Sd"><div class="_hd">热门文章</div>{_links(chance, 8, "div")}</div>
<div class="_7Ft"><div><a href="a">关于</a><a href="b">加入我们</a><a href="c">用户协议</a></div><div>© 2024 远山号 中国互联网举报中心 京ICP备00000000号-3</div><div>网络文化经营许可证：京网文〔2020〕0000-000号 违法和不良信息举报：400-000-0000</div></div></div></div></body></html>"""
    return html, list(article.paragraphs), True, False


TEMPLATES: dict[str, Callable[[Article, random.Random], Filled]] = {
    "news portal": news,
    "government": government,
    "blog": blog,
    "forum thread": forum,
    "wechat": wechat,
    "encyclopedia": encyclopedia,
    "documentation": documentation,
    "shop": shop,
    "novel chapter": novel,
    "traditional news": traditional,
    "2005 tables": tables,
    "div soup": soup,
}
