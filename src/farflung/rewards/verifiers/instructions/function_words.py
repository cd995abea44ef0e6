# ruff: noqa: E501, RUF001 - a line is a language, in its own letters
"""Short frequent words of the languages that share a script, and letters that only some of them have."""

from collections.abc import Mapping

FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(line.split())
    for language, line in {
        "de": "der die das und ist nicht ein eine zu den von mit auf für im dem sich auch es an als wie werden ich sie wir",
        "en": "the of and to in is that it was for on are as with his they be at this have from or had by not but what",
        "es": "el la los las de que y en un una es se no por con para su al del lo como más pero sus este está son",
        "fi": "ja on ei se että hän oli olla mutta kun ovat myös niin kuin joka tai minä sinä ne jos sen voi ole tämä",
        "fr": "le la les de des et est un une que qui dans pour pas sur au avec ce il elle sont du en plus par nous vous",
        "it": "il lo la gli le di che e è un una per non in con si del della sono come più ma anche al dei nel questo",
        "pl": "i w na nie się z jest to do że jak o za od po przez są dla być ale tym tak który która oraz czy już",
        "pt": "o a os as de que e em um uma é não para com por se do da no na mais como mas foi ao são você seu dos",
        "sw": "na ya wa kwa ni katika za la cha kuwa hii huo yake watu hiyo kama lakini pia au hivyo sana yao wao hayo",
        "vi": "và là của có không được cho trong một các với những này để đã người khi như đó cũng từ về bạn rất nhiều",
        "bg": "и на да се за от в не е са че с по като но което ще това който към при има тази аз ние са си",
        "ru": "и в не на что он с как это по но они мы из у за от вы то все так его для она бы был или быть",
        "uk": "і в не на що він з як це та але вони ми із у за від ви до все так його для вона був або є й ще",
        "ar": "في من على أن إلى هذا التي الذي هو عن مع ما لا كان هذه هي أو كل قد ذلك بين بعد عند إن لم",
        "fa": "و در به از که این را با است برای آن یک خود تا کرد بر هم نیز می شود ها های بود ما اگر",
        "ur": "کے کی میں ہے اور سے کا کو اس پر یہ نے ہیں کہ ایک بھی نہیں تو کر جو وہ گیا تھا ہو لیے",
        "hi": "है के में की और से का को हैं यह पर ने कि एक भी नहीं तो कर जो वह था हो लिए इस या",
        "mr": "आहे आणि या च्या ही हे तो ती मी आहेत नाही होते होता एक तर पण किंवा असे त्या झाले करून साठी काही मध्ये हा",
        "ne": "छ र को मा हो यो छन् लाई पनि गर्न भएको एक तर के गरेको थियो हुन्छ ले वा गर्ने छैन उनी तपाईं हरू भने",
    }.items()
}

OWN_LETTERS: Mapping[str, str] = {
    "ru": "ыэё", "uk": "іїєґ", "ar": "ةىكي", "fa": "پگچژ", "ur": "ٹڈڑںےہ", "de": "ßäöü", "es": "ñ",
    "fi": "äö", "pl": "łąężśćńź", "pt": "ãõç", "vi": "ơưđăạảấầẩậắặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ", "fr": "çêèœâ",
}  # fmt: skip
"""Letters that speak for a language among those of its script; a word with one counts as one of its words."""
