//! The table of known keys, in groups of trades. `providers.rs` says how a row is read.
//!
//! The last group is of no provider: marks like `_live_` and `_pat_` that new providers choose as well.

use super::Row;

#[rustfmt::skip]
pub(in crate::secrets) const PROVIDERS: &[Row] = &[
    // Clouds.
    Row("", "AKIA", "U16"), Row("", "ASIA", "U16"), Row("", "ABIA", "U16"), Row("", "ACCA", "U16"), Row("", "A3T", "u1 U16"),
    Row("", "ABSK", "b100-300"), Row("", "bedrock-api-key-", "b32+"),
    Row("", "AIza", "k35"), Row("", "ya29.", "k30+"), Row("", "GOCSPX-", "k28"), Row("", "1//0", "k40-200"),
    Row("c3", "Q~", "c31-34"),
    Row("", "LTAI", "a12-22"), Row("", "dop_v1_", "h64"), Row("", "doo_v1_", "h64"), Row("", "dor_v1_", "h64"),
    Row("", "HRKU-", "k36-70"), Row("", "v1.0-", "h24 '-' h100-200"), Row("", "t1.", "t100-300"), Row("", "AQVN", "k35-38"),
    Row("", "YCAJE", "k20"), Row("", "YCN", "k35-37"), Row("", "YCP", "k35-37"), Row("", "YCM", "k35-37"), Row("", "nfp_", "a36-50"), Row("", "nfc_", "a36-50"), Row("", "rnd_", "a28-40"),
    Row("", "fo1_", "k43"), Row("", "fm1r_", "b60+"), Row("", "fm1a_", "b60+"), Row("", "fm2_", "b60+"),
    Row("", "tk-us-", "k48"), Row("", "sha256~", "k43"), Row("", "dapi", "h32 ?'-' ?d1"), Row("", "dckr_pat_", "k27"),
    Row("", "dckr_oat_", "k32"), Row("", "tskey-", "k20-80"), Row("", "ops_eyJ", "b200+"), Row("", "SCW", "u17"), Row("", "vck_", "a40-80"),
    Row("", "vcp_", "a40-80"), Row("", "vercel_blob_rw_", "w30-80"), Row("", "LINODE", "k58-70"), Row("", "ocid1.credential.", "t30+"),
    Row("", "pscale_tkn_", "t32-64"), Row("", "pscale_pw_", "t32-64"), Row("", "pscale_oauth_", "t32-64"),
    Row("", "sbp_", "h40"), Row("", "sb_secret_", "k20-50"), Row("", "napi_", "l60-70"), Row("", "mdb_sa_sk_", "k40-60"), Row("", "rediss_", "a40"),
    Row("", "4b1d", "a38"), Row("", "ATATT3", "b180-200"), Row("", "ATCTT3", "b150-200"), Row("", "ATBB", "a28-36"), Row("", "AZDO", "a60-90"),
    // Code, packages, building.
    Row("", "ghp_", "a36-255"), Row("", "gho_", "a36-255"), Row("", "ghu_", "a36-255"), Row("", "ghs_", "a36-255"), Row("", "ghr_", "a36-255"),
    Row("", "github_pat_", "w82"), Row("", "glpat-", "k20"), Row("", "glpat-", "k27-300 '.' l2 '.' l7-9"), Row("", "glptt-", "h40"), Row("", "gldt-", "k20"),
    Row("", "glft-", "k20"), Row("", "glft-", "h64 '-' d1"), Row("", "glsoat-", "k20"), Row("", "glimt-", "k25"), Row("", "glagent-", "k50"),
    Row("", "gloas-", "k64"), Row("", "glffct-", "k20"), Row("", "glcbt-", "k20-28"), Row("", "glrt-", "k20"), Row("", "glrt-t", "d1 '_' k20"), Row("", "glrt-t", "d1 '_' k27-300 '.' l2 '.' l7-9"), Row("", "glrtr-", "k20"),
    Row("", "glwt-", "k20"), Row("", "GR1348941", "k20"), Row("", "_gitlab_session=", "h32"),
    Row("", "npm_", "a36"), Row("", "npm_", "a43-48"), Row("", "pypi-AgEIcHlwaS5vcmc", "k50+"), Row("", "pypi-AgENdGVzdC5weXBpLm9yZ", "k50+"),
    Row("", "rubygems_", "h48"), Row("", "CLOJARS_", "l60"), Row("", "oy2", "l43"), Row("", "cio", "a32"), Row("", "ddp_", "a36"), Row("", "ddw_", "a36"),
    Row("", "AKCp", "a69"), Row("", "cmVmd", "a59"), Row("", "pul-", "h40"), Row("a14", ".atlasv1.", "k60-70"), Row("", "hvs.", "k24-120"),
    Row("", "hvb.", "k138-300"), Row("", "hvr.", "k24-120"), Row("", "s.", "a24"), Row("", "sgp_", "H16 '_' H40"), Row("", "sgp_", "H40"), Row("", "sgp_local_", "H40"), Row("", "slk_", "H64"),
    Row("", "bkua_", "h40"), Row("", "bkpt_", "h40"), Row("", "CCIPAT_", "a20-24 '_' h40"), Row("", "CCIPRJ_", "a20-24 '_' h40"), Row("", "API-", "u26"),
    Row("", "sqp_", "h40"), Row("", "squ_", "h40"), Row("", "sqa_", "h40"), Row("", "figd_", "k38-60"), Row("", "figo_", "k38-60"), Row("", "PMAK-", "H24 '-' H34"), Row("", "PMAT-", "u26"),
    Row("", "pnu_", "l36"), Row("", "pnb_", "l36"), Row("", "ico-", "a32"), Row("", "pat.", "k22 '.' h24 '.' a20"), Row("", "sat.", "k22 '.' h24 '.' a20"),
    Row("", "dp.pt.", "a40-44"), Row("", "dp.st.", "t40-70"), Row("", "dp.ct.", "a40-44"), Row("", "dp.sa.", "a40-44"), Row("", "dp.scim.", "a40-44"),
    Row("", "dp.audit.", "a40-44"), Row("", "sntryu_", "h64"), Row("", "sntrys_", "b60+"), Row("", "sntrya_", "h64"), Row("", "lin_api_", "a40"), Row("", "lin_oauth_", "a40-70"),
    Row("", "rdme_", "l70"), Row("", "tfp_", "t59"), Row("", "sm_pat_", "a16"), Row("", "sm_sat_", "a16"), Row("", "sm_aat_", "a16"), Row("", "CFPAT-", "k43"),
    Row("", "ntn_", "d11 a35"), Row("", "secret_", "a43"), Row("", "pat", "a14 '.' h64"), Row("", "ctpat_", "a30+"), Row("", "bb_pat_", "a24+"), Row("", "jsr_", "a30+"), Row("", "ATTA", "H64 H8"), Row("", "cfut_", "k30+"),
    Row("", "rpa_", "u30-60"), Row("", "rt_", "h64"), Row("", "tgp_v1_", "k40+"), Row("", "pkce_", "a40+"), Row("", "xau_", "k30+"),
    // Models.
    Row("", "sk-ant-", "k40+"), Row("", "sk-proj-", "k40+"), Row("", "sk-svcacct-", "k40+"), Row("", "sk-admin-", "k40+"), Row("", "sk-or-v1-", "h64"),
    Row("", "sk-", "k40+"), Row("", "sk-", "a12-60"), Row("", "sess-", "a40"), Row("", "hf_", "a34"), Row("", "api_org_", "x34"), Row("", "r8_", "a37"), Row("", "gsk_", "a48-56"),
    Row("", "xai-", "a70-90"), Row("", "pplx-", "a40-64"), Row("", "nvapi-", "k60-80"), Row("", "lsv2_pt_", "h32 '_' h10"), Row("", "lsv2_sk_", "h32 '_' h10"),
    Row("", "pcsk_", "w40-90"), Row("", "tvly-", "k28-50"), Row("", "csk-", "a40-60"), Row("", "fw_", "a22-28"), Row("", "sk_", "h48"), Row("", "co_", "a40"), Row("", "jina_", "k50-80"), Row("", "voyage-", "k40+"), Row("", "pa-", "k43"), Row("", "fc-", "h32"), Row("", "phx_", "a40-50"), Row("", "phc_", "a40-50"),
    Row("", "weaviate_", "a30+"), Row("", "key_", "h64"), Row("", "wandb_v1_", "w40+"), Row("", "e2b_", "h40"), Row("", "apify_api_", "a36"), Row("", "AI_", "a40"),
    // Talking to people.
    Row("", "xoxb-", "d8-14 ?'-' ?d8-14 ?'-' a16-40"), Row("", "xoxb-", "d8-14 '-' a18-40"), Row("", "xoxp-", "k40-120"), Row("", "xoxa-", "k20-120"), Row("", "xoxr-", "k20-120"), Row("", "xoxs-", "k20-120"), Row("", "xoxo-", "k20-120"), Row("", "xoxc-", "k40-120"), Row("", "xoxd-", "b60+"), Row("", "xoxe.xoxb-", "k40-250"), Row("", "xoxe.xoxp-", "k40-250"),
    Row("", "xoxe-", "k40-250"), Row("", "xapp-", "d1 '-' u6-14 '-' d8-14 '-' a32+"), Row("", "xwfp-", "k40+"),
    Row("", "hooks.slack.com/", "p40-140"), Row("", "discord.com/api/webhooks/", "d17-20 '/' k60-80"), Row("", "discordapp.com/api/webhooks/", "d17-20 '/' k60-80"),
    Row("l1-40", ".webhook.office.com/webhookb2/", "p80-250"), Row("", "hooks.zapier.com/hooks/catch/", "p14-60"), Row("", "chat.googleapis.com/v1/spaces/", "p12-60 '/messages?key=' k39 ?'&token=' ?p20-80"), Row("", "api.telegram.org/bot", "d8-12 ':' k30-40"),
    Row("d8-10", ":AA", "k32-34"), Row("k23-28", ".G", "k5 '.' k27-40"), Row("k23-28", ".X", "k5 '.' k27-40"), Row("k23-28", ".Y", "k5 '.' k27-40"), Row("", "SG.", "k20-24 '.' k39-50"), Row("", "SK", "h32"), Row("", "key-", "h32"), Row("", "pubkey-", "h32"), Row("h32", "-us", "d1-2 ?'_x' ?h12"), Row("h32", "-", "h8 '-' h8"),
    Row("", "xkeysib-", "h64 '-' a16"), Row("", "xsmtpsib-", "h64 '-' a16"), Row("", "re_", "a8 '_' a24"), Row("", "EAAM", "a80+"), Row("", "EAAC", "a80+"), Row("", "EAA", "a100+"), Row("d15-17", "|", "k27"), Row("", "IGQV", "k100+"),
    Row("", "AAAAAAAAAAAAAAAAAAAAA", "p70-120"), Row("a7", ":APA91b", "k120-180"), Row("", "PSID", "k40"), Row("", "s-s4t2ud-", "h64"), Row("", "s-s4t2af-", "h64"), Row("", "fio-u-", "k64"), Row("", "dG9rO", "b54-60"), Row("", "pat-na1-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"), Row("", "pat-eu1-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"),
    Row("", "sl.", "k130+"), Row("", "p8e-", "l32"), Row("", "b_", "k44"), Row("", "sdk-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"), Row("", "mob-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"), Row("", "api-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"),
    // Money and shops.
    Row("", "sk_live_", "a10-120"), Row("", "sk_test_", "a10-120"), Row("", "sk_prod_", "a10-120"), Row("", "rk_live_", "a10-120"), Row("", "rk_test_", "a10-120"), Row("", "rk_prod_", "a10-120"), Row("", "whsec_", "b24-80"),
    Row("", "EAAA", "k60"), Row("", "EAAAE", "k59"), Row("", "sq0atp-", "k22"), Row("", "sq0csp-", "k43"), Row("", "shpat_", "H32"), Row("", "shpca_", "H32"), Row("", "shppa_", "H32"), Row("", "shpss_", "H32"), Row("", "shptka_", "H32"),
    Row("", "shippo_live_", "H40"), Row("", "shippo_test_", "H40"), Row("", "EZAK", "a54"), Row("", "EZTK", "a54"), Row("", "duffel_test_", "k43"), Row("", "duffel_live_", "k43"),
    Row("", "FLWSECK_TEST-", "a12-40 ?'-X'"), Row("", "FLWPUBK_TEST-", "a12-40 ?'-X'"), Row("", "FLWSECK-", "a12-40 ?'-X'"), Row("", "FLWSECK_TEST", "h12"), Row("", "access_token$production$", "l16 '$' h32"), Row("", "access_token$sandbox$", "l16 '$' h32"),
    Row("", "rzp_live_", "a14-20"), Row("", "rzp_test_", "a14-20"), Row("", "access-sandbox-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"), Row("", "access-development-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"), Row("", "access-production-", "h8 '-' h4 '-' h4 '-' h4 '-' h12"),
    Row("", "live_", "H35"), Row("", "test_", "H35"), Row("", "live_", "k40"), Row("", "live_pub_", "h31"), Row("", "test_pub_", "h31"), Row("", "AQE", "k60+"), Row("", "APP_USR-", "d12-20 '-' d6 '-' h32 '-' d6-12"), Row("", "cqo_", "a40"),
    // Watching and measuring.
    Row("", "glsa_", "a32 '_' H8"), Row("", "glc_", "b32-400"), Row("", "eyJrIjoi", "b60-400"), Row("", "NRAK-", "u27"), Row("", "NRJS-", "h19"), Row("", "NRII-", "k32"), Row("", "NRAA-", "h27"), Row("", "NRRA-", "h42"), Row("h36", "NRAL", "?h1 ?l1 ?a1"),
    Row("", "dt0c01.", "u24 '.' u64"), Row("", "dt0s01.", "u24 '.' u64"), Row("", "dt0s02.", "u24 '.' u64"), Row("", "hcaik_", "l58-64"), Row("", "ddapi_", "h32+"), Row("", "pdus+", "k20+"), Row("", "AC-", "k40"), Row("", "logfire_", "a40+"), Row("", "pub", "h32"),
    Row("a6", "_", "a29 '_mmk'"), Row("", "pk.eyJ", "k40-200 '.' k20-40"), Row("", "sk.eyJ", "k40-200 '.' k20-40"), Row("", "tk.eyJ", "k40-200 '.' k20-40"),
    // Keeping secrets.
    Row("", "AGE-SECRET-KEY-1", "u58"), Row("", "A3-", "u6 '-' u6 ?'-' u5 '-' u5 '-' u5 '-' u5"), Row("", "0x", "H64"), Row("", "xprv", "a100-112"), Row("", "zprv", "a100-112"), Row("", "vault:v1:", "b40+"),
    Row("", "sc_", "a5-30 '.' a4-6 '.acc' k10-32 '.' b30-120"), Row("", "ext_", "a5-30 '.' a4-6 '.acc' k10-32 '.' b30-120"), Row("", "authress_", "a5-30 '.' a4-6 '.acc' k10-32 '.' b30-120"), Row("", "scauth_", "a5-30 '.' a4-6 '.acc' k10-32 '.' b30-120"),
    // Of nobody in particular.
    Row("w1-16", "_live_", "a16-128"), Row("w1-16", "_test_", "a20-128"), Row("w1-16", "_prod_", "a20-128"), Row("w1-16", "_pat_", "a16-128"), Row("w1-16", "_sk_", "a16-128"), Row("w1-16", "_secret_", "a20-128"), Row("w1-16", "_token_", "a24-128"), Row("w1-16", "_key_", "a24-128"), Row("w1-16", "_api_", "a24-128"),
];
