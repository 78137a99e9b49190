"""The catalogue: 中文 for every text that is said with `say`."""

CHINESE: dict[str, str] = {
    # the command
    "A Transformer by hand, after Khan": "手算一个 Transformer（据 Khan）",
    "From counting to attention, after B. Rohrer": "从计数到注意力（据 B. Rohrer）",
    "Attention from nothing, after P. Bloem": "从零开始的注意力（据 P. Bloem）",
    "Why places must be told, after Hung-yi Lee": "为什么要告知位置（据李宏毅）",
    "Layer norm and batch norm, after Hung-yi Lee": "层归一化与批归一化（据李宏毅）",
    "{run} reads {text}": "{run} 读 {text}",
    "{run} reads {text}: {name}": "{run} 读 {text}：{name}",
    "{at} of {all}: any key goes on, b goes back, q ends": (
        "第 {at} 步，共 {all} 步：按任意键继续，b 返回，q 结束"
    ),
    "Solution": "答案",
    "{name}, the first {most} of {wide} columns": "{name}（共 {wide} 列，此处为前 {most} 列）",
    "{name}, the first {most} of {tall} rows": "{name}（共 {tall} 行，此处为前 {most} 行）",
    # names of matrices
    "as printed": "原文给出的数值",
    "as it should be": "正确值",
    "as it should be, from the printed input": "正确值（由原文印出的输入算起）",
    "as it should be, from the printed rounded Q and K": "正确值（由原文舍入后的 Q 和 K 算起）",
    "as it should be, from the printed sum": "正确值（由原文印出的和算起）",
    "as it should be, of these five": "正确值（仅就这五个词）",
    "with the right positions too": "位置编码也改正之后",
    "given": "已知",
    "ours": "我们补充",
    "ours, of all words": "我们补充（就全部词而言）",
    "ours, all right from the start": "我们补充（从头全部改正）",
    "scores, ours": "分数（我们补充）",
    "pattern, ours": "注意力（我们补充）",
    "what it adds, ours": "它所加上的（我们补充）",
    "what goes in": "输入",
    "what comes out": "输出",
    "before": "之前",
    "after": "之后",
    "scores": "分数",
    "parameters": "参数",
    "pattern": "注意力",
    "loss": "损失",
    "mean": "均值",
    "deviation": "标准差",
    "words": "词",
    "ids": "编号",
    "source": "源文",
    "probabilities": "概率",
    # from a corpus to numbers
    "Vocabulary": "词汇表",
    "Every different word of the corpus gets a number.": "语料中每个不同的词得到一个编号。",
    "There are {folded} words if case is folded and {kept} if not; without <start> and <end> a "
    "sentence could neither begin nor stop.": (
        "不分大小写有 {folded} 个词，区分则有 {kept} 个；没有 <start> 和 <end>，"
        "句子既不能开始也不能结束。"
    ),
    "Input": "输入",
    "The sentence is looked up word by word: {text}.": "逐词查出句子的编号：{text}。",
    "The sentence has seven words; the tutorial drops “the” and goes on with six.": (
        "句子有七个词；原文丢掉了 “the”，用六个词继续。"
    ),
    "the numbers of its words": "各词的编号",
    "Embedding": "嵌入",
    "Each word is a row of numbers. They start by chance and are learnt.": (
        "每个词是一行数字，起初是随机的，之后由学习得到。"
    ),
    "Position": "位置",
    "Waves tell the place of each word: slower ones further to the right.": (
        "用波表示每个词的位置：越靠右，波越慢。"
    ),
    "by the tutorial's own formula": "按原文自己的公式",
    "{own} of 36 cells contradict the tutorial's own formula: at places 1, 3 and 4 it took the "
    "sine for odd features. {paper} of 36 differ from the paper, because the exponent has the "
    "feature's number i where it needs that of its pair.": (
        "36 格中有 {own} 格与原文自己的公式矛盾：在位置 1、3、4，奇数维误用了正弦。"
        "有 {paper} 格与论文不同，因为指数里用了维的序号 i，而应当用它所在的一对的序号。"
    ),
    "Embedding and position": "嵌入加位置",
    "The two are added; the tutorial calls it concatenation.": "两者相加；原文称之为“连接”。",
    "It follows from the printed positions, so that it has their mistakes.": (
        "它由印出的位置编码算得，因此带有同样的错误。"
    ),
    # attention
    "Queries": "查询",
    "What each word asks for: its row times a matrix.": "每个词要找什么：它的一行乘以一个矩阵。",
    "The printed queries follow from the printed input.": "印出的查询确由印出的输入算得。",
    "Keys": "键",
    "What each word offers to be found by.": "每个词凭什么被找到。",
    "The printed keys follow from the printed input.": "印出的键确由印出的输入算得。",
    "Values": "值",
    "What each word has to give.": "每个词能给出什么。",
    "{right} of 24 cells are right: what is printed is a copy of the queries.": (
        "24 格中有 {right} 格正确：印出的是查询的副本。"
    ),
    "Products": "点积",
    "How well each word's question (row) meets each word's offer (column).": (
        "每个词的查询（行）与每个词的键（列）有多相合。"
    ),
    "Right.": "正确。",
    "Scores": "分数",
    "Divided by the root of the head's width, so that they do not grow with it.": (
        "除以头的宽度的平方根，使分数不随宽度增大。"
    ),
    "divided by √6": "除以 √6",
    "The tutorial divides by √6, the width of the embedding ({cells} of 36 cells agree, to two "
    "places; its caption says 5). A head is 4 wide: it must be √4 = 2.": (
        "原文除以 √6，即嵌入的宽度（36 格中有 {cells} 格到两位小数相符；图注却写 5）。"
        "头的宽度是 4：应除以 √4 = 2。"
    ),
    "Pattern": "注意力",
    "Each row becomes shares that add up to one: whom a word reads, and how much.": (
        "每一行变成总和为一的份额：一个词读谁、读多少。"
    ),
    "The tutorial shows this step as a picture only.": "原文此步只有图片。",
    "Mixture": "混合",
    "Each word becomes a mixture of the values that it reads.": "每个词变成它所读的值的混合。",
    "The printed mixture is that of the queries, with scores divided by √6: within {off:.0e}.": (
        "印出的是对查询（而非值）的混合，且分数除以了 √6：误差在 {off:.0e} 以内。"
    ),
    "Projection": "投影",
    "Back to the width of the embedding.": "回到嵌入的宽度。",
    "From the printed Z, rounded, {cells} of 36 cells follow; Z was wrong.": (
        "由舍入后的 Z 可得 36 格中的 {cells} 格；错在 Z。"
    ),
    "Add and norm": "相加与归一化",
    "The input is added, then each row is brought to mean 0 and deviation 1.": (
        "加上输入，再把每一行变为均值 0、标准差 1。"
    ),
    "With the arithmetic mean {plain} of 36 cells follow, with the geometric mean {slip}: the "
    "first row's is {wrong:.2f}, where the mean is {right:.3f}. The norm also lacks the scale and "
    "the shift that are learnt.": (
        "用算术平均，36 格中有 {plain} 格相符；用几何平均则有 {slip} 格：第一行的几何平均是 "
        "{wrong:.2f}，而均值是 {right:.3f}。此归一化还缺少可学习的缩放与平移。"
    ),
    # the rest of the encoder
    "Feed-forward, as printed": "前馈层（原文给出的数值）",
    "The tutorial has one layer; its weights are not in the text.": (
        "原文只有一层；文中没有给出它的权重。"
    ),
    "It cannot be checked. Of the block after ReLU it prints five of six rows.": (
        "无法核对。ReLU 之后的矩阵六行中只印了五行。"
    ),
    "Feed-forward, completed": "前馈层（补全）",
    "The paper's has two layers. These weights are ours, on the right first norm.": (
        "论文中有两层。这里的权重是我们的，输入是改正后的第一次归一化。"
    ),
    "after ReLU": "ReLU 之后",
    "Second sum": "第二次相加",
    "Back to the printed numbers: what the norm said plus what the layer said.": (
        "回到印出的数字：归一化的结果加上前馈层的结果。"
    ),
    "its means, as printed": "各行均值（原文给出的数值）",
    "Right, and so are its means.": "正确，各行均值也正确。",
    "Second deviation": "第二次标准差",
    "How far the numbers of a row lie from their mean.": "一行数字离均值有多远。",
    "of each row together with the next": "每一行与下一行合在一起的标准差",
    "The printed ones are the sample deviation of two rows together, each with the next, to "
    "{off:.0e}: a range in a spreadsheet that was one row too long.": (
        "印出的是相邻两行合在一起的样本标准差，误差 {off:.0e}：电子表格的区域多选了一行。"
    ),
    "Second norm": "第二次归一化",
    "What the encoder says in the end.": "编码器最后的输出。",
    "{wrong} of 36 cells are wrong, because the deviations are.": (
        "36 格中有 {wrong} 格是错的，因为标准差是错的。"
    ),
    # the decoder
    "What the decoder reads": "解码器读什么",
    "While it learns, the decoder reads the right answer shifted by one, all places at once: "
    "{text}. These embeddings are ours.": (
        "训练时，解码器一次读入右移一位的正确答案的所有位置：{text}。这些嵌入是我们的。"
    ),
    "The tutorial feeds <end> as well, does not shift, and says one word at a time.": (
        "原文把 <end> 也作为输入，没有右移，还说每次只输入一个词。"
    ),
    "Masked attention": "带掩码的注意力",
    "A word may look at itself and at those before it; what is to come is hidden.": (
        "一个词可以看自己和它之前的词；之后的词被遮住。"
    ),
    "A mask hides the future; it does not prevent overfitting.": "掩码遮住未来；它并不防止过拟合。",
    "Attention to the source": "对源文的注意力",
    "Queries come from the decoder, keys and values from the encoder.": (
        "查询来自解码器，键和值来自编码器。"
    ),
    "The tutorial takes queries and keys from the encoder, values from the decoder.": (
        "原文让查询和键来自编码器，值来自解码器。"
    ),
    "What the decoder says": "解码器的输出",
    "After its feed-forward layer and its last norm.": "经过前馈层和最后一次归一化之后。",
    "Scores for words": "各词的分数",
    "Each place has a score for every word.": "每个位置对每个词都有一个分数。",
    "The tutorial flattens all places into one row of 36; each place is for itself.": (
        "原文把所有位置压平成一行 36 个数；其实每个位置各自计算。"
    ),
    "Probabilities": "概率",
    "For five words the tutorial prints scores and probabilities.": (
        "原文印出了五个词的分数和概率。"
    ),
    "its scores": "它的分数",
    "Equal scores of 2.3 cannot be .05 and .12.": "同为 2.3 的分数不可能一个是 .05、一个是 .12。",
    "The predicted words, before it has learnt": "学习之前预测的词",
    "Likeliest after each place: {words}. Chance: nothing was learnt yet.": (
        "每个位置之后最可能的词：{words}。这是碰巧：还什么都没学。"
    ),
    "Loss": "损失",
    "How surprised it is by the right words {text}.": "它对正确的词 {text} 有多意外。",
    "p of the right word": "正确的词的概率",
    "Gradient": "梯度",
    "How the loss changes with each score, and so with each weight of the last layer.": (
        "损失怎样随每个分数变化，从而怎样随最后一层的每个权重变化。"
    ),
    "by the scores of these words": "对这些词的分数",
    "by the weights of these words": "对这些词的权重",
    "One update": "一次更新",
    "Every weight of the network takes a step downhill, at a rate of {rate}; those of the last "
    "layer for these words are shown.": (
        "网络的每个权重都朝下坡走一步，学习率为 {rate}；此处显示最后一层中这些词的权重。"
    ),
    "W ← W − rate × ∂loss/∂W": "W ← W − 学习率 × ∂损失/∂W",
    "−log p(right word), the mean over all places": "−log p(正确的词)，对所有位置取平均",
    "(p − 1[right]) / places;  ∂loss/∂W = Xᵀ (p − 1[right]) / places": (
        "(p − 1[正确]) / 位置数；∂损失/∂W = Xᵀ (p − 1[正确]) / 位置数"
    ),
    "Not twice": "不要做两次",
    "The loss takes scores and has a softmax of its own. One tutorial puts another before it: then "
    "even an answer without a doubt, of four words the last, seems doubtful.": (
        "损失函数接受分数，自带一次 softmax。有一篇教程在它前面又做了一次："
        "这样，即使毫无疑问的答案（四个词中的最后一个）也显得可疑。"
    ),
    "the answer": "答案",
    "after another softmax": "再做一次 softmax 之后",
    "its loss, which can get no lower": "它的损失，再也降不下去",
    "its slope, which is not 0": "它的梯度，并不为 0",
    "weights before": "更新前的权重",
    "and after": "更新后的权重",
    "loss before and after": "更新前后的损失",
    "After {count} updates": "更新 {count} 次之后",
    "From there on by Adam, at a rate of {rate}. It says, word by word from <start>: {words}": (
        "此后用 Adam，学习率为 {rate}。它从 <start> 起逐词说出：{words}"
    ),
    "after the norm": "归一化之后",
    "E[id], ours": "E[id]（我们补充）",
    "{name}, ours": "{name}（我们补充）",
    "A Transformer by hand": "手算一个 Transformer",
    "Khan's tutorial (2024) works out a Transformer with 6 features a word (f0 to f5), one head 4 "
    "wide (e0 to e3) and one block a side. “As printed” is what stands there, with * at each cell "
    "that is wrong; “as it should be” is computed by the parts that train models here, with the "
    "tutorial's numbers as their weights. Where it is silent the weights are our own, and say "
    "so.": (
        "Khan 的教程（AI大模型世界，2024）手算一个 Transformer：每个词 6 个特征（f0 到 f5），"
        "一个宽 4 的头（e0 到 e3），编码器和解码器各一块。“原文给出的数值”是教程所印，"
        "错的格子标 *；“正确值”由这里训练模型的同一批部件算出，以教程的数字为权重。"
        "教程没有给出的权重由我们补充，并注明。"
    ),
    "What else the tutorial says": "教程还说了什么",
    "A rule for the width of an embedding, by the number of words N = {n}.": (
        "由词数 N = {n} 决定嵌入宽度的一条规则。"
    ),
    "width": "宽度",
    "by the natural logarithm": "按自然对数",
    "by that to base 10": "按以 10 为底的对数",
    "used": "实际采用",
    "By its own rule its embedding is too narrow. It gives LLaMA an encoder; LLaMA is a decoder "
    "alone. It adds ε to the deviation; ε stands under the root with the variance.": (
        "按它自己的规则，它的嵌入太窄。它说 LLaMA 有编码器；LLaMA 只有解码器。"
        "它把 ε 加在标准差上；ε 应在根号下与方差相加。"
    ),
    # two small examples
    "Masked attention, three words": "带掩码的注意力：三个词",
    "Two heads whose matrices are the identity, so that both read X itself.": (
        "两个头的矩阵都是单位矩阵，因此都直接读 X。"
    ),
    "Head {head}: products": "头 {head}：点积",
    "What is printed is X itself, or X turned over: no product was made.": (
        "印出的是 X 本身或 X 的转置：根本没有相乘。"
    ),
    "Head {head}: mask": "头 {head}：掩码",
    "What is to come gets a score of minus infinity, so that its share is 0.": (
        "之后的词得到负无穷的分数，于是份额为 0。"
    ),
    "shares from the printed scores": "由印出的分数得到的份额",
    "A score of 0 hides nothing: the first word reads {first:.3f} of itself and {leak:.3f} of each "
    "word to come.": ("分数 0 什么也遮不住：第一个词读自己 {first:.3f}，读之后每个词 {leak:.3f}。"),
    "This head hides the past and shows the future, with a score of 0.": (
        "这个头用分数 0 遮住了过去，却露出了未来。"
    ),
    "Pattern and mixture": "注意力与混合",
    "The scores differ so much that each word reads almost only itself.": (
        "分数相差太大，每个词几乎只读自己。"
    ),
    "pattern, as it should be": "注意力（正确值）",
    "what both heads say, side by side": "两个头的输出，并排放置",
    "The heads stand side by side, and one more matrix brings them together.": (
        "各头并排，再用一个矩阵合在一起。"
    ),
    "Why scores are divided": "为什么要缩放分数",
    "Two products of a head of 64: 112 and 96. Undivided, one share is nearly all.": (
        "宽 64 的头的两个点积：112 和 96。不缩放时，一个份额几乎占了全部。"
    ),
    "softmax of 112 and 96": "112 和 96 的 softmax",
    "divided by 8: 14 and 12": "除以 8：14 和 12",
    "slope of the softmax, p (1 − p), undivided and divided": (
        "softmax 的斜率 p (1 − p)，缩放前与缩放后"
    ),
    "Where a share is nearly all, the slope is nearly nothing and little is learnt.": (
        "当一个份额几乎占了全部时，斜率几乎为零，学不到什么。"
    ),
    # counting
    "One-hot": "独热编码",
    "Each of N words is a row of N numbers: a one at its own place.": (
        "N 个词各是一行 N 个数：自己的位置为 1。"
    ),
    "products of words": "词与词的点积",
    "A word times itself is 1 (the tutorial says: unchanged), and times another 0.": (
        "一个词乘自己得 1（原文说“结果不变”），乘别的词得 0。"
    ),
    "Transition matrix": "转移矩阵",
    "What share of all that followed a word (row) each word (column) has.": (
        "在跟随某词（行）的所有词中，每个词（列）占多少。"
    ),
    "Look-up by product": "用乘法查表",
    "A one-hot row times a matrix picks one of its rows: what follows “my”.": (
        "独热的一行乘矩阵，就是选出矩阵的一行：“my” 之后是什么。"
    ),
    "Second order": "二阶",
    "Of one word before, “ran” leaves the next open; two words before settle it. There are N² rows "
    "for that.": "只看前一个词 “ran”，下一个词未定；看前两个词就定了。为此需要 N² 行。",
    "after one word": "看前一个词",
    "after two words": "看前两个词",
    "Second order with skips": "带跳跃的二阶",
    "Every pair of “ran” and a word before it votes for the next: {text} …": (
        "“ran” 与它之前每个词组成的对都为下一个词投票：{text} …"
    ),
    "the vote of each pair": "每一对的票",
    "all votes": "总票数",
    "Most pairs know nothing and say a half: the votes are close.": (
        "多数对什么也不知道，各投一半：票数很接近。"
    ),
    "Mask": "掩码",
    "Pairs that are sure of nothing are silenced. Which words matter is attention.": (
        "没有把握的对被屏蔽。哪些词要紧，就是注意力。"
    ),
    "Attention as look-up": "注意力即查表",
    "The word now is the question; a matrix says what it looks for.": (
        "当前的词是查询；一个矩阵说明它要看什么。"
    ),
    "the words before, seen through it": "透过它看到的前文",
    "Pairs as features": "词对作为特征",
    "A feature is 1 when both of its words are there: their sum less 1; below 0 is 0.": (
        "两个词都在时特征为 1：它们的和减 1；小于 0 的取 0。"
    ),
    "What follows": "接下来是什么",
    "And a second matrix says what each pair is followed by.": "第二个矩阵说明每一对之后是什么。",
    "the next word": "下一个词",
    # attention from nothing
    "Why products: films and people": "为什么用点积：电影与观众",
    "What a film has and what a person likes, feature by feature: like signs add up.": (
        "电影有什么、观众喜欢什么，逐项相乘：符号相同则加分。"
    ),
    "films, by hand": "电影（手工设计）",
    "people, by hand": "观众（手工设计）",
    "Attention without parameters": "没有参数的注意力",
    "Every word becomes a mixture of all words, itself too, by how alike they are.": (
        "每个词按相似程度变成所有词（包括自己）的混合。"
    ),
    "Weights come from what the words are, not from where they stand; nothing is saved by it, for "
    "every word looks at every word.": (
        "权重取决于词是什么，而不取决于词在哪里；计算并没有减少，因为每个词都看每个词。"
    ),
    "A set, not a sequence": "是集合，不是序列",
    "With the words in reverse order each says the same.": "把词倒过来，每个词的输出不变。",
    "largest difference": "最大差",
    "Queries, keys and values": "查询、键和值",
    "Three matrices give a word three roles: to ask, to be found, to be read.": (
        "三个矩阵给词三种角色：去问、被找到、被读取。"
    ),
    "Scaling": "缩放",
    "Products grow with the root of the number of features; dividing by it keeps shares from being "
    "all or nothing.": "点积随特征数的平方根增大；除以它，份额才不会非全即无。",
    "undivided": "不缩放",
    "divided by √4": "除以 √4",
    "deviation of a product of k random features, 10,000 of each": (
        "k 个随机特征的点积的标准差（各取一万次）"
    ),
    "measured": "实测",
    "What grows is the deviation, not the mean, which stays 0.": "增大的是标准差；均值始终是 0。",
    "Heads": "多头",
    "Two heads of half the width can read differently, as “gave” needs a giver and a receiver; "
    "these weights are random. Each divides by √(k/h).": (
        "两个半宽的头可以各读各的，正如 “gave” 要有给的人和收的人；这里的权重是随机的。"
        "各自除以 √(k/h)。"
    ),
    "Whom a word finds": "一个词找到谁",
    "Here {words} find another word before themselves: asking and being found are different "
    "matrices.": "这里 {words} 最先找到的是别的词：提问和被找到用的是不同的矩阵。",
    "One tutorial says that a query meets its own key best; nothing makes it so.": (
        "有一篇教程说查询与自己的键最相合；并没有什么保证如此。"
    ),
    "film {number}": "影片 {number}",
    "person {number}": "观众 {number}",
    "romance": "爱情",
    "action": "动作",
    "comedy": "喜剧",
    "score = u · f": "分数 = u · f",
    "attend(reversed X) = reversed attend(X)": "attend(倒序 X) = 倒序 attend(X)",
    "3 h k (k/h) = 3 k²,  and k² to bring the heads together": (
        "3 h k (k/h) = 3 k²，另有 k² 用来合并各头"
    ),
    "votes = Σ T[(i, ran), k] over all i before": "票数 = Σ T[(i, ran), k]，对之前的所有 i",
    "T[i, j] = count(i j) / count(i)": "T[i, j] = 次数(i j) / 次数(i)",
    "A[i, j] = −∞ for j > i": "A[i, j] = −∞，当 j > i",
    "text {number}": "文本 {number}",
    "(x − mean of the row) / deviation of the row": "(x − 行均值) / 行标准差",
    "(x − mean of the column) / deviation of the column": "(x − 列均值) / 列标准差",
    "Scale and shift": "缩放与平移",
    "normal × scale + shift,  deviation = √(variance + ε)": (
        "标准化 × 缩放 + 平移，标准差 = √(方差 + ε)"
    ),
    "Two rows are learnt, so that a model can take back what the norm took away. A little number "
    "under the root keeps a row of equal numbers from a division by 0.": (
        "缩放和平移是学到的，使模型能取回归一化所去掉的。"
        "根号下的小数 ε 使数字全相等的一行不会除以 0。"
    ),
    "of 5 5 5 5, by the norm alone": "5 5 5 5 仅归一化之后",
    "A tutorial leaves both out, and adds ε to the deviation.": (
        "有一篇教程两者都没有，并把 ε 加在标准差上。"
    ),
    "pattern of head 1": "头 1 的注意力",
    "pattern of head 2": "头 2 的注意力",
    "both, projected": "两者合并投影之后",
    "The tutorial's code divides by √k for any number of heads.": (
        "原文的代码不论几个头都除以 √k。"
    ),
    "How many parameters": "有多少参数",
    "Counted in layers {wide} wide: many heads cost no more than one.": (
        "在宽 {wide} 的层里数得：多个头的参数并不比一个头多。"
    ),
    "one head": "一个头",
    "four heads": "四个头",
    "The tutorial prints 3hk^(k/h), where a superscript slipped.": (
        "原文印成 3hk^(k/h)，上标错位了。"
    ),
    # places
    "Without places": "没有位置",
    "“I ate the meal” and “the meal ate me” have the same characters: each says the same in both, "
    "only elsewhere.": "“我吃饭了”与“饭吃我了”的字相同：每个字的输出一样，只是换了地方。",
    "largest difference of a character to itself": "同一个字在两句中的最大差",
    "With places": "有位置",
    "A wave for each place is added, and the two sentences come apart.": (
        "加上每个位置的波，两句话就分开了。"
    ),
    "Adding does what concatenating does": "相加等价于拼接独热位置再作线性变换",
    "A one-hot place behind each word, times one matrix, is the word times its left half plus a "
    "column of its right half: a vector for each place, added.": (
        "在每个词后面拼接独热的位置再乘一个矩阵，等于词乘矩阵的左半，加上右半的一列："
        "也就是加上每个位置的一个向量。"
    ),
    # norms
    "Layer norm": "层归一化",
    "Each text by itself: the second, ten times the first, becomes the same.": (
        "每个文本各自归一化：第二个是第一个的十倍，结果却相同。"
    ),
    "the first text alone": "只有第一个文本",
    "It needs no batch. It makes nothing normally distributed: only the mean and the deviation "
    "change.": "它不需要批次。它并不使任何东西服从正态分布：改变的只是均值和标准差。",
    "Batch norm": "批归一化",
    "Each feature over all texts: what a text becomes depends on the others.": (
        "每个特征在所有文本上归一化：一个文本的结果取决于其他文本。"
    ),
    "of the first two texts alone": "只有前两个文本",
    # what is asked of a model
    "{n} more rows": "另有 {n} 行",
    "{n} more columns": "另有 {n} 列",
    "all of it": "整体",
    "kept as {name}": "取自 {name}",
    "{n} more terms come to {total:.6g} together.": "其余 {n} 项合计 {total:.6g}。",
    "These are all its terms; below stands how the heaviest was made, and so on.": (
        "这是它的全部各项；下面是最重的一项怎么来的，如此类推。"
    ),
    "Computed again it is {again:.6g}: it was changed later. ": (
        "重新计算得 {again:.6g}：它后来被改动过。"
    ),
    "(no name)": "（无名）",
    "The score of {answer} at {row}. ": "{row} 处 {answer} 的分数。",
    "What {row} reads of {column}. ": "{row} 读 {column} 多少。",
    "At {row}. ": "在 {row} 处。",
    "row × column": "行 × 列",
    "row × column + bias": "行 × 列 + 偏置",
    "window × weights + bias": "窗口 × 权重 + 偏置",
    "sum": "求和",
    "from whole numbers": "来自整数",
    "filled in": "填入的常数",
    "terms": "各项",
    "value": "值",
    "factor": "因子",
    "product": "乘积",
    "share": "占比",
    "previous": "前一个",
    "first": "首个",
    "same": "自身",
    "duplicate": "先前相同",
    "induction": "归纳",
    "distance": "距离",
    "cost": "代价",
    "heads": "各注意力头",
    "Where each head looks, and what it is worth": "每个头看向何处，价值几何",
    "Shares of attention: to the token before, the first, itself, the same token earlier, and what "
    "followed that (induction); how far it looks, in tokens. “All alike” is a head that looks at "
    "all it may alike.": "注意力的占比：前一个词元、首个词元、自身、先前出现的相同词元、"
    "以及其后所跟的词元（归纳）；看多远（以词元计）。“一视同仁”是对可看的词元平均看待的头。",
    " The cost of switching a head off: nats added to the loss of the text.": (
        "关掉一个头的代价：文本的损失增加多少奈特。"
    ),
    " The cost of switching a head off: how far the answer moves, in nats (KL).": (
        "关掉一个头的代价：答案移动多远（KL 散度，以奈特计）。"
    ),
    "all alike": "一视同仁",
    "From the clean text to the corrupt one {first} goes from {a:.1%} to {c:.1%} and {second} from "
    "{b:.1%} to {d:.1%}: a change of {gap:.2f} nats between the two. Each number is the share of "
    "that which one value of the clean text brings back when it is put into the corrupt one.": (
        "从原文到改动后的文本，{first} 由 {a:.1%} 变为 {c:.1%}，{second} 由 {b:.1%} 变为 {d:.1%}："
        "两者之差改变了 {gap:.2f} 奈特。"
        "每个数是：把原文的一个值放进改动后的文本，能挽回这一差距的多少。"
    ),
    " That is so little that the shares say little.": "这一差距很小，占比意义不大。",
    "values at each token": "每个词元处的值",
    "each head": "每个头",
    "Which values carry the difference": "哪些值承载了差别",
    "What each token of the translation (row) read of the source": "译文的每个词元（行）"
    "读了原文的哪些",
    "vocab size = count(set(N))": "词表大小 = 计数(去重(N))",
    "(X + A − mean) / deviation": "(X + A − 均值) / 标准差",
    "√(mean of (x − mean)²)": "√((x − 均值)² 的均值)",
    # the worksheet of a model
    "mean of the row": "该行的均值",
    "√(mean of (x − mean)² + ε)": "√((x − 均值)² 的均值 + ε)",
    "(x − mean) / deviation": "(x − 均值) / 标准差",
    "(x − mean) / deviation × scale + shift": "(x − 均值) / 标准差 × 缩放 + 平移",
    "√(mean of x² + ε)": "√(x² 的均值 + ε)",
    "x / deviation": "x / 均方根",
    "x / deviation × scale": "x / 均方根 × 缩放",
    "x + {layer}(norm(x))": "x + {layer}(归一化(x))",
    "x + {layer}(x)": "x + {layer}(x)",
    "mean over the tokens": "各词元的均值",
    "pattern X": "注意力 X",
    "pattern V": "注意力 V",
    "softmax(scores)": "softmax(分数)",
    "hidden": "隐层",
    "activation": "激活函数",
    "norm({act}(X W + b)) Eᵀ + offset": "归一化({act}(X W + b)) Eᵀ + 偏移",
    "{product} of turned Q and K": "{product}（Q 与 K 已旋转）",
    "{product} + bias by distance": "{product} + 按距离的偏置",
    "{product}, −∞ where hidden": "{product}，被遮处为 −∞",
    "{title} ({name})": "{title}（{name}）",
    "{title}, of the source": "{title}（源文）",
    "scale": "缩放",
    "shift": "平移",
    "Tokens and ids": "词元与编号",
    "The text is cut into tokens, and each token has a number.": (
        "文本被切成词元，每个词元有一个编号。"
    ),
    " It is read by a {name}.": "读它的模型是 {name}。",
    " Block {layer} is shown whole.": "完整显示第 {layer} 块。",
    " {n} of the tokens are unknown to its tokenizer.": "其中 {n} 个词元不在分词器的词表里。",
    " Head {head} of 0 to {last}.": "头 {head}（编号 0–{last}）。",
    "The likeliest after the last token.": "最后一个词元之后最可能的词元。",
    "The likeliest labels.": "最可能的标签。",
    "The likeliest in place of [MASK].": "[MASK] 处最可能的词元。",
    "The likeliest in the last place; write [MASK] where a token is to be guessed.": (
        "最后一处最可能的词元；要猜哪个词元，就在那里写 [MASK]。"
    ),
    "Embedded": "嵌入之和",
    "All that is told of a token, together.": "关于一个词元所告知的一切，合在一起。",
    "Each token is looked up in a table that was learnt.": "每个词元在学到的表中查出一行。",
    "Embedding of the source": "源文的嵌入",
    "The source has a table of its own.": "源文有自己的表。",
    "Segment": "段",
    "Which of two texts a token belongs to.": "词元属于两段文本中的哪一段。",
    "Where each token stands.": "每个词元在哪里。",
    "Waves tell where each token stands.": "用波表示每个词元在哪里。",
    "What each token asks for.": "每个词元要找什么。",
    "What each token offers to be found by.": "每个词元凭什么被找到。",
    "What each token has to give.": "每个词元能给出什么。",
    " S is what the encoder says of the source.": "S 是编码器对源文的输出。",
    "How well questions meet offers.": "查询与键有多相合。",
    "How alike tokens are.": "词元彼此有多相像。",
    "Whom each token (row) reads, and how much.": "每个词元（行）读谁、读多少。",
    "Each token becomes a mixture of what it reads.": "每个词元变成它所读内容的混合。",
    "Each token becomes a mixture of all.": "每个词元变成全体的混合。",
    "All heads together, brought back to one row for each token.": (
        "所有头合在一起，每个词元变回一行。"
    ),
    "Residual": "残差",
    "What was there before is kept.": "原有的内容保留下来。",
    "Mean": "均值",
    "What the norm takes away.": "归一化要减去的。",
    "Deviation": "标准差",
    "What the norm divides by.": "归一化要除以的。",
    "Normalised": "标准化",
    "Every row is of one size.": "每一行大小一致。",
    "Norm": "归一化",
    "Every row is of one size, then scaled as was learnt.": "每一行大小一致，再按学到的缩放。",
    "Inside the feed-forward layer": "前馈层内部",
    "Features of each token, by itself: large where one is found.": (
        "逐个词元的特征：找到某个特征，其值就大。"
    ),
    "Feed-forward": "前馈层",
    "What the features add.": "这些特征所加上的。",
    "Block": "块",
    "What the block says: it goes on.": "这一块的输出，交给后面。",
    "Blocks before block {layer} are left out: this goes into it.": (
        "第 {layer} 块之前的块从略：这是它的输入。"
    ),
    "Blocks after block {layer} are left out: the last one says this.": (
        "第 {layer} 块之后的块从略：这是最后一块的输出。"
    ),
    "Pooled": "汇聚",
    "One row stands for the whole text.": "用一行代表整段文本。",
    "The first token, made ready to stand for the whole text.": "用首个词元代表整段文本。",
    "Features": "特征",
    "What is known of each token in the end.": "最终对每个词元的了解。",
    "Guesses": "猜测",
    "A score for every token in every place.": "每一处对每个词元各有一个分数。",
    "Head": "输出层",
    "Chances by counting (tokens known: {n})": "计数得到的概率（已知前 {n} 个词元）",
    "(count + kinds / vocab) / (seen + kinds)": "(次数 + 种数 / 词表大小) / (总次数 + 种数)",
    "(count + kinds × chance knowing one less) / (seen + kinds)": (
        "(次数 + 种数 × 少知道一个时的概率) / (总次数 + 种数)"
    ),
    "How often each token (column) is the answer at all.": "每个词元（列）总体上作为答案的频率。",
    "How often each token (column) is the answer; what is rare trusts knowing less.": (
        "每个词元（列）作为答案的频率；罕见的情形更多采信知道得较少时的概率。"
    ),
    "Layer": "线性层",
    "A score for every class.": "每个类别一个分数。",
    "The likeliest classes.": "最可能的类别。",
    "Votes": "票",
    "What pairs of tokens vote for.": "词元对投给谁。",
    "Scores in the end": "最后的分数",
    "One for every token or label there is.": "每个词元或标签各有一个。",
}
