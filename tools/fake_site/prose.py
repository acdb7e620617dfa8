"""Made-up Chinese, equal for equal random states: names, places and events are invented."""

from __future__ import annotations

import random

_WHO = "陈教练 何工程师 小学的校长 渡口的摆渡人 两位编剧 值夜班的护士 修钟表的老人 合作社的会计 邻县的诗人 养蜂人 年轻的裁缝 地质队的队员".split()
_WHEN = "立秋那天 天还没亮 汛期过后 上个礼拜三 停电的夜里 赶集的日子 收工以后 第一场雪落下时 会议结束前 孩子们睡着以后".split()
_WHAT = (
    "把仓库里的旧机器重新装了一遍 在墙上画出一条水位线，旁边写着年份 和镇上的人商量怎样把路修得宽一些 读完了三十年前的一摞日记 "
    "给每一棵树都挂上了写着名字的木牌 试着用新的办法记录潮汐，结果比从前准确得多 把剩下的面粉分成了七份 解释说账目里少掉的那一笔其实是运费 "
    "用两个下午搭好了戏台，又用一个晚上拆掉 沿着铁路走了十几里，只为看一眼新桥 建议大家先把井修好，再谈别的事情 听见远处有人在吹口琴"
).split(" ")
_END = (
    "这个办法后来传到了别的村子。 谁都没有料到会是这样。 有人赞成，也有人摇头。 报上只登了短短一行。 至于原因，要到第二年春天才弄清楚。 "
    "他把这句话写在了本子的最后一页。 灯一直亮到后半夜。 这是许多年来的第一次。 桌上的茶已经凉了。 数字虽小，意义却不小。"
).split(" ")


def sentence(chance: random.Random) -> str:
    """A made-up sentence with its end mark, and sometimes a second one."""
    text = f"{chance.choice(_WHEN)}，{chance.choice(_WHO)}{chance.choice(_WHAT)}，花了{chance.randint(2, 90)}天。"
    return text + (chance.choice(_END) if chance.random() < 0.6 else "")


def headline(chance: random.Random) -> str:
    """A made-up headline, as links show it."""
    return f"{chance.choice(_WHO)}{chance.choice(_WHAT).split('，')[0]}"
